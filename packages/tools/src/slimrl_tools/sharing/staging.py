"""Collects the files for `slimrl push` in a directory, as links or as texts without secrets, directories and hosts.

If a file beside the weights is changed, the checksums are computed anew, so that a downloaded copy passes its checks.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.checksums import SUMS, check_sums, seal
from slimrl.io.regular_file import read_json, read_regular
from slimrl.io.run_dir import RunDir, step_directories
from slimrl_tools.sharing.card import FILE_NAME as README
from slimrl_tools.sharing.card import NO_NAME, PICTURE, card_text
from slimrl_tools.sharing.facts import read_facts
from slimrl_tools.sharing.places import shareable

ADAPTER, ADAPTER_CONFIG, BASE = "adapter", "adapter_config.json", "base_model_name_or_path"
MAX_TEXT_BYTES = 2**26


@dataclass(frozen=True, slots=True)
class Source:
    """The directory of a step's weights, and the directory of the run that saved them. `run_dir` is None if that run is
    missing."""

    weights: Path
    run_dir: Path | None


def find_source(path: Path) -> Source:
    """Find the weights at a path: the path itself, or the target of `weights/latest` in a run. Raises UserError if
    there are no weights."""
    path = path.expanduser()
    if (path / "config.json").is_file():
        run_dir = path.resolve().parents[1]
        return Source(path.resolve(), run_dir if RunDir(run_dir).settings.is_file() else None)
    latest = path / "weights" / "latest"
    if found := [latest] if latest.is_dir() else step_directories(path / "weights"):
        return Source(found[-1].resolve(), path.resolve())
    what = "does not exist" if not path.exists() else "is neither a run with weights nor a directory of weights"
    raise UserError(
        f"{path} {what}. Name a run's directory, or its `weights/step_N`, as in `slimrl push RUN OWNER/NAME`."
    )


def stage(source: Source, repository: str, stage_dir: Path) -> None:
    """Stage the files of an upload to `repository` in the empty directory `stage_dir`. Weights without a README.md get
    a model card, unless their run is missing. Raises UserError for damaged weights."""
    weights, run_dir = source.weights, source.run_dir
    check_sums(weights)
    facts = read_facts(run_dir, weights) if run_dir else None
    base = facts.base.best_name if facts else ""
    for path in _visible_files(weights):
        if path.parent != weights or path.name not in (README, PICTURE):
            _put(path, stage_dir / path.relative_to(weights), _shared_text(path, base))
    _renew_sums(stage_dir)
    # Stage the card last, because the checksums do not include it.
    card, pictures = weights / README, weights
    if card.is_file():
        text = _read(card)
    elif facts and run_dir:
        pictures = run_dir
        text = card_text(facts, (run_dir / PICTURE).is_file())
    else:
        return
    _put(card, stage_dir / README, text.replace(NO_NAME, repository))
    if (pictures / PICTURE).is_file():
        _put(pictures / PICTURE, stage_dir / PICTURE)


def staged_files(stage_dir: Path) -> dict[str, Path]:
    """Return the staged files by their paths in the repository. A staged link is a file that was not changed."""
    paths = sorted(path for path in stage_dir.rglob("*") if path.is_file())
    return {path.relative_to(stage_dir).as_posix(): path for path in paths}


def _shared_text(path: Path, base: str) -> str | None:
    """Return the text of a file without this machine's directories and hosts; None if the file is uploaded unchanged.
    The name `base` replaces the directory of an adapter's base model."""
    if path.parent.name == ADAPTER and path.name in (ADAPTER_CONFIG, README) and base:
        content = read_json(path.with_name(ADAPTER_CONFIG), MAX_TEXT_BYTES)
        if path.name == README:
            return _read(path).replace(content[BASE], base)
        return json.dumps(shareable(content) | {BASE: base}, indent=2)
    if path.name == "config.json":
        content = read_json(path, MAX_TEXT_BYTES)
        shared = shareable(content)
        return None if shared == content else json.dumps(shared, indent=2)
    return None


def _renew_sums(stage_dir: Path) -> None:
    """Compute the checksums anew where a file was changed."""
    for directory in (stage_dir / ADAPTER, stage_dir):  # the adapter first, as the outer checksums include its files
        is_changed = any(not one.is_symlink() for one in staged_files(directory).values())
        if is_changed and (directory / SUMS).is_file():
            (directory / SUMS).unlink()
            seal(directory)


def _visible_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and not any(part.startswith((".", "__")) for part in path.relative_to(root).parts):
            yield path


def _put(path: Path, staged: Path, text: str | None = None) -> None:
    """Stage a file: as `text`, or as a link to `path` if `text` is None or equals the file's content."""
    staged.parent.mkdir(parents=True, exist_ok=True)
    if text is None or (path.is_file() and text == _read(path)):
        staged.symlink_to(path.resolve())
    else:
        staged.write_text(text, encoding="utf-8")


def _read(path: Path) -> str:
    return read_regular(path, MAX_TEXT_BYTES).decode("utf-8")
