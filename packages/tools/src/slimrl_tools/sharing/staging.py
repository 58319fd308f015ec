"""Collects the files for `slimrl push` in a directory, as links or as texts without secrets, directories and hosts.

If a file beside the weights is changed, the checksums are computed anew, so that a downloaded copy passes its checks.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slimrl.errors import UserError
from slimrl.io.checksums import SUMS, check_sums, seal
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir, step_directories
from slimrl.io.secrets import has_secret
from slimrl_tools.sharing.card import FILE_NAME as README
from slimrl_tools.sharing.card import PICTURE, card_text, may_replace
from slimrl_tools.sharing.facts import read_facts
from slimrl_tools.sharing.places import shareable_text

What = Literal["weights", "adapter", "run"]
ADAPTER, ADAPTER_CONFIG, BASE = "adapter", "adapter_config.json", "base_model_name_or_path"
MAX_TEXT_BYTES = 2**26
# The files of a run besides its weights. Checkpoints serve only to resume the run here, and are never uploaded.
RUN_FILES = (
    *("*.toml", "metrics.jsonl", "monitors.jsonl", "summary.json", "plan.json", "held_out/*.json", "*.png"),
    "warmup/metrics.jsonl",
)
TEXTS = (".toml", ".json", ".jsonl")
NUMBERS = "metrics.jsonl"  # always a link, as it is long and contains only numbers
ROLLOUTS = ("rollouts/*.jsonl", "held_out/*.jsonl")


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


def stage(source: Source, what: What, repository: str, stage_dir: Path, with_rollouts: bool = False) -> list[str]:
    """Stage the files of an upload in the empty directory `stage_dir`, and return remarks for the user.

    Raises UserError for damaged weights, for a missing adapter or run, and for rollouts that contain a likely secret
    key.
    """
    weights, run_dir = source.weights, source.run_dir
    check_sums(weights)
    root = weights / ADAPTER if what == "adapter" else weights
    if not root.is_dir():
        raise UserError(f"{weights} has no adapter: it was trained without LoRA. `--what weights` uploads the weights.")
    if run_dir is None:
        if what == "run":
            raise UserError(f"{weights} lies in no run's directory. `--what weights` uploads the weights alone.")
        for path in _visible_files(root):
            _put(path, stage_dir / path.relative_to(root))
        is_bare = not (stage_dir / README).exists()
        return ["the run of these weights is not there: they go without a model card"] if is_bare else []
    facts = read_facts(run_dir, weights)
    _stage_weights(root, stage_dir, facts.base.best_name)
    is_own = not may_replace(weights / README)  # the user wrote the card
    card = None if is_own else card_text(facts, (run_dir / PICTURE).is_file(), repository, what == "adapter")
    _put(weights / README, stage_dir / README, card)
    if (picture := (weights if is_own else run_dir) / PICTURE).is_file():
        _put(picture, stage_dir / PICTURE)
    return _stage_run(run_dir, stage_dir / "run", with_rollouts) if what == "run" else []


def staged_files(stage_dir: Path) -> dict[str, Path]:
    """Return the staged files by their paths in the repository. A staged link is a file that was not changed."""
    paths = sorted(path for path in stage_dir.rglob("*") if path.is_file())
    return {path.relative_to(stage_dir).as_posix(): path for path in paths}


def _stage_weights(root: Path, stage_dir: Path, base: str) -> None:
    """Stage the weights of a run without their card. The name `base` replaces the base model's directory on this
    machine. The checksums are computed anew if a file changes."""
    for path in _visible_files(root):
        place, text = path.relative_to(root), None
        if place.as_posix() in (README, PICTURE):
            continue
        if path.name == "config.json":
            text = shareable_text(_read(path), path.suffix)
        elif path.name == ADAPTER_CONFIG:
            text = json.dumps(json.loads(shareable_text(_read(path), path.suffix)) | {BASE: base}, indent=2)
        elif path.name == README:  # the adapter's own README
            text = _read(path).replace(json.loads(_read(path.with_name(ADAPTER_CONFIG)))[BASE], base)
        _put(path, stage_dir / place, text)
    for directory in (stage_dir / ADAPTER, stage_dir):  # the adapter first, as the outer checksums include its files
        sums = directory / SUMS
        is_changed = any(not one.is_symlink() for one in staged_files(directory).values())
        if sums.is_file() and (is_changed or README in _read(sums)):
            sums.unlink()
            seal(directory)


def _visible_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and not any(part.startswith((".", "__")) for part in path.relative_to(root).parts):
            yield path


def _stage_run(run_dir: Path, stage_dir: Path, with_rollouts: bool) -> list[str]:
    """Stage the files that describe a run, and return remarks. Texts are staged without secrets, directories and
    hosts."""
    for path in _find(run_dir, RUN_FILES):
        is_text = path.suffix in TEXTS and path.name != NUMBERS
        _put(path, stage_dir / path.relative_to(run_dir), shareable_text(_read(path), path.suffix) if is_text else None)
    rollouts = _find(run_dir, ROLLOUTS)
    if rollouts and not with_rollouts:
        return [f"{len(rollouts)} files of rollouts stay here; --rollouts uploads them too: read some first"]
    for path in rollouts:
        _check_rollouts(path)
        _put(path, stage_dir / path.relative_to(run_dir))
    return []


def _find(run_dir: Path, patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(run_dir.glob(pattern)) if path.is_file()]


def _put(path: Path, staged: Path, text: str | None = None) -> None:
    """Stage a file: as `text`, or as a link to `path` if `text` is None or equals the file's content."""
    staged.parent.mkdir(parents=True, exist_ok=True)
    if text is None or (path.is_file() and text == _read(path)):
        staged.symlink_to(path.resolve())
    else:
        staged.write_text(text, encoding="utf-8")


def _read(path: Path) -> str:
    return read_regular(path, MAX_TEXT_BYTES).decode("utf-8")


def _check_rollouts(path: Path) -> None:
    """Raise UserError if a file of rollouts contains a text that looks like a secret key."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if has_secret(line):
                raise UserError(
                    f"{path}:{number} has something that looks like a key, and nothing was uploaded. Take the file out "
                    "of the run's directory, or upload without `--rollouts`."
                )
