"""Describes a run: its settings, model, environments and progress. Reads only small files."""

import hashlib
import json
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slimrl.config.reading.saved import HEADER, NO_RECIPE, by_dotted_key
from slimrl.errors import UserError
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir
from slimrl_view.curves import Curves
from slimrl_view.runs import NamedRun

MAX_BYTES = 2**22
SILENT_S = 600.0  # a run that has written nothing for this long counts as finished
Json = dict[str, Any]


class Settings:
    """The settings of a run from its directory; empty if they are missing or unreadable."""

    def __init__(self, run: Path) -> None:
        try:
            text = read_regular(RunDir(run).settings, MAX_BYTES).decode()
            self.tree: Mapping[str, Any] = tomllib.loads(text)
        except (UserError, ValueError, RecursionError):
            text, self.tree = "", {}
        found = HEADER.match(text)
        self.command = found[1] if found else ""

    def get(self, path: str) -> Any:
        """Return the setting at a dotted path; None if it is missing."""
        value: Any = self.tree
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def environments(self) -> list[str]:
        """Return the names of the run's environments."""
        found = self.get("orchestrator.env") or self.get("env") or []
        listed = found if isinstance(found, list) else [found]
        return [str(one.get("name") or one.get("id", "")) for one in listed if isinstance(one, Mapping)]

    def key(self) -> str:
        """Return a digest of the command and the recipe's settings. It is equal for runs that differ only in their
        seeds."""
        kept = {path: value for path, value in by_dotted_key(self.tree).items() if not NO_RECIPE.fullmatch(path)}
        content = json.dumps([self.command, kept], sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def describe(run: NamedRun, curves: Curves) -> Json:
    """Return the entry for a run in the page's list of runs."""
    settings = Settings(run.path)
    return {
        "id": run.id,
        "name": run.path.name,
        "path": run.shown,
        "command": settings.command,
        "environments": settings.environments(),
        "algorithm": str(settings.get("trainer.loss.type") or ""),
        "seed": settings.get("seed"),
        "max_steps": settings.get("max_steps"),
        "step": curves.last_step(),
        "live": _is_live(run.path),
        # A run without settings counts as a separate experiment.
        "config_key": settings.key() if settings.tree else run.id,
    }


def _is_live(run: Path) -> bool:
    files = RunDir(run)
    newest = max(files.rollouts.glob("*.jsonl"), default=files.rollouts)
    updated = max(map(_mtime, (files.metrics, files.warmup.metrics, newest, files.held_out, files.summary)))
    # The last change must be recent, and not the final summary or result.
    if _mtime(files.summary) >= _mtime(files.metrics) > 0 or _mtime(files.results) >= updated > 0:
        return False
    return time.time() - updated < SILENT_S


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
