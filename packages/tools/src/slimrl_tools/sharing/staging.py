"""Collects the files for `slimrl push` in a directory, as links or as texts without secrets, directories and hosts."""

import json
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.checksums import SUMS, check_sums
from slimrl.io.regular_file import read_json, read_regular
from slimrl.io.run_dir import RunDir, step_directories
from slimrl_tools.sharing.card import FILE_NAME as README
from slimrl_tools.sharing.card import NO_NAME, write_card
from slimrl_tools.sharing.facts import read_facts
from slimrl_tools.sharing.places import shareable

ADAPTER_CONFIG, BASE = "adapter/adapter_config.json", "base_model_name_or_path"
MAX_TEXT_BYTES = 2**26


def find_source(path: Path) -> tuple[Path, Path | None]:
    """Return the directory of the weights at a path, and of the run that saved them, None if this run is missing. The
    path is a run, of which `weights/latest` is taken, or weights. Raises UserError if there are no weights."""
    path = path.expanduser()
    if (path / "config.json").is_file():
        run_dir = path.resolve().parents[1]
        return path.resolve(), run_dir if RunDir(run_dir).settings.is_file() else None
    latest = path / "weights" / "latest"
    if found := [latest] if latest.is_dir() else step_directories(path / "weights"):
        return found[-1].resolve(), path.resolve()
    what = "does not exist" if not path.exists() else "is neither a run with weights nor a directory of weights"
    raise UserError(
        f"{path} {what}. Name a run's directory, or its `weights/step_N`, as in `slimrl push RUN OWNER/NAME`."
    )


def stage(weights: Path, run_dir: Path | None, repository: str, stage_dir: Path) -> None:
    """Stage the files of an upload to `repository` in the empty directory `stage_dir`. Weights without a README.md get
    a model card beside them, unless their run is missing. Raises UserError for damaged weights."""
    check_sums(weights)
    base = ""
    if run_dir:
        base = read_facts(run_dir, weights).base.best_name
        write_card(run_dir, weights)
    for path in sorted(weights.rglob("*")):
        place = path.relative_to(weights)
        # The Hub computes checksums of its own.
        if path.is_file() and path.name != SUMS and not any(part.startswith((".", "__")) for part in place.parts):
            _put(path, stage_dir / place, _shared_text(path, place.as_posix(), repository, base))


def staged_files(stage_dir: Path) -> dict[str, Path]:
    """Return the staged files by their paths in the repository. A staged link is a file that was not changed."""
    paths = sorted(path for path in stage_dir.rglob("*") if path.is_file())
    return {path.relative_to(stage_dir).as_posix(): path for path in paths}


def _shared_text(path: Path, name: str, repository: str, base: str) -> str | None:
    """Return the text of a file without this machine's directories and hosts; None if the file is uploaded unchanged.
    The name `base` replaces the directory of an adapter's base model."""
    if name == README:
        text = read_regular(path, MAX_TEXT_BYTES).decode("utf-8")
        return text.replace(NO_NAME, repository) if NO_NAME in text else None
    if name not in ("config.json", ADAPTER_CONFIG):
        return None
    content = read_json(path, MAX_TEXT_BYTES)
    shared = shareable(content)
    if name == ADAPTER_CONFIG and base:
        shared[BASE] = base
    return None if shared == content else json.dumps(shared, indent=2)


def _put(path: Path, staged: Path, text: str | None) -> None:
    staged.parent.mkdir(parents=True, exist_ok=True)
    if text is None:
        staged.symlink_to(path)
    else:
        staged.write_text(text, encoding="utf-8")
