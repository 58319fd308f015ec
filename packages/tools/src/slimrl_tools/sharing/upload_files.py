"""Which files `slimrl push` uploads, and what each of them holds: nothing secret, no place of this machine.

Knows nothing of the network. A file that is changed on its way is kept in memory, and the lists of checksums that it
stands in are written anew, so that what is downloaded again is whole.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimrl.config.reading.write import FILE_NAME as CONFIG
from slimrl.errors import UserError
from slimrl.io.checksums import SUMS, check_sums, rewrite_sums
from slimrl.io.regular_file import read_regular
from slimrl.io.secrets import has_secret, redact
from slimrl_tools.sharing.card import FILE_NAME as README
from slimrl_tools.sharing.card import card_text, is_untouched
from slimrl_tools.sharing.card_text import PICTURE
from slimrl_tools.sharing.facts import STEP, RunFacts, read_facts, shareable
from slimrl_tools.sharing.places import prose_without_places

What = Literal["weights", "adapter", "run"]
Content = Path | bytes
ADAPTER, ADAPTER_CONFIG = "adapter", "adapter_config.json"
CONFIGS = ("config.json", ADAPTER_CONFIG, f"{ADAPTER}/{ADAPTER_CONFIG}", f"{ADAPTER}/{README}")
MAX_TEXT_BYTES = 2**26
# Of a run, besides its weights: what describes it. Checkpoints are for going on here, and are never uploaded.
RUN_FILES = (
    *("*.toml", "metrics.jsonl", "monitors.jsonl", "summary.json", "plan.json", "held_out/*.json", "*.png"),
    "warmup/metrics.jsonl",
)
NUMBERS = "metrics.jsonl"  # nothing else is in it, and it is long
ROLLOUTS = ("rollouts/*.jsonl", "held_out/*.jsonl")


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be uploaded: the weights of a step, and the run that they are of, if it is still there."""

    weights: Path
    run_dir: Path | None


@dataclass(frozen=True, slots=True)
class UploadFiles:
    """The files by their paths in the repository, and remarks for the person who uploads them."""

    files: Mapping[str, Content]
    remarks: list[str] = field(default_factory=list)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file in bytes."""
        return {
            path: len(content) if isinstance(content, bytes) else content.stat().st_size
            for path, content in self.files.items()
        }


def find_source(path: Path) -> Source:
    """The weights that a path means: itself, or of a run those that `weights/latest` names. Raises UserError."""
    path = path.expanduser()
    if (path / ADAPTER_CONFIG).is_file() and (path.parent / "config.json").is_file():
        path = path.parent
    if (path / "config.json").is_file():
        run_dir = path.resolve().parents[1]
        return Source(path.resolve(), run_dir if (run_dir / CONFIG).is_file() else None)
    steps = [one for one in (path / "weights").glob("step_*") if STEP.fullmatch(one.name)]
    if steps:
        latest = path / "weights" / "latest"
        newest = max(steps, key=lambda one: int(one.name.removeprefix("step_")))
        return Source((latest if latest.is_dir() else newest).resolve(), path.resolve())
    what = "does not exist" if not path.exists() else "is neither a run with weights nor a directory of weights"
    raise UserError(
        f"{path} {what}. Name a run's directory, or its `weights/step_N`, as in `slimrl push RUN OWNER/NAME`."
    )


def collect_files(source: Source, what: What, repository: str, with_rollouts: bool = False) -> UploadFiles:
    """The files of an upload. Raises UserError for weights that are damaged, for an adapter or a run that is not there,
    and for rollouts that hold something that looks like a key."""
    check_sums(source.weights)
    root = source.weights / ADAPTER if what == "adapter" else source.weights
    if not root.is_dir():
        raise UserError(
            f"{source.weights} has no adapter: it was trained without LoRA. `--what weights` uploads the weights."
        )
    files: dict[str, Content] = {
        path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*")) if _is_shared(path, root)
    }
    remarks: list[str] = []
    changes: dict[str, Content] = {}
    if source.run_dir:
        facts = read_facts(source.run_dir, source.weights)
        changes = {**_clean_configs(files, facts), **_card(source, facts, repository, what == "adapter")}
    elif README not in files:
        remarks.append("the run of these weights is not there: they go without a model card")
    files |= changes
    files |= _new_sums(files, changes)
    if what == "run":
        files |= _run_files(source, with_rollouts, remarks)
    return UploadFiles(dict(sorted(files.items())), remarks)


def _is_shared(path: Path, root: Path) -> bool:
    return path.is_file() and not any(part.startswith((".", "__")) for part in path.relative_to(root).parts)


def _clean_configs(files: Mapping[str, Content], facts: RunFacts) -> dict[str, Content]:
    """The files in which it is written where something came from, where that is a place of this machine."""
    found: dict[str, Content] = {}
    for path, content in files.items():
        if path not in CONFIGS or isinstance(content, bytes):
            continue
        text = read_regular(content, MAX_TEXT_BYTES).decode("utf-8")
        clean = prose_without_places(redact(text)) if path.endswith(README) else shareable(text)
        if path.endswith(ADAPTER_CONFIG):
            settings = json.loads(clean)
            settings["base_model_name_or_path"] = facts.base.hub_name or facts.base.name
            clean = json.dumps(settings, indent=2)
        if clean != text:
            found[path] = clean.encode()
    return found


def _card(source: Source, facts: RunFacts, repository: str, is_adapter: bool) -> dict[str, Content]:
    """The model card with the repository's name, and its picture; nothing if the weights have a README.md of the
    user's."""
    readme = source.weights / README
    if readme.is_file() and not is_untouched(read_regular(readme, MAX_TEXT_BYTES).decode("utf-8", "replace")):
        return {README: readme}
    picture = source.run_dir / PICTURE if source.run_dir else None
    shown: dict[str, Content] = {PICTURE: picture} if picture and picture.is_file() else {}
    text = card_text(facts, bool(shown), repository, is_adapter)
    return {README: text.encode(), **shown}


def _new_sums(files: Mapping[str, Content], changes: Mapping[str, Content]) -> dict[str, Content]:
    """The lists of checksums that name a changed file, the inner ones first, since the outer ones name them too."""
    changed = {
        path: read_regular(new, MAX_TEXT_BYTES) if isinstance(new, Path) else new for path, new in changes.items()
    }
    found: dict[str, Content] = {}
    for path in sorted((path for path in files if path.rpartition("/")[2] == SUMS), key=len, reverse=True):
        text, prefix = _bytes_of(files[path]).decode(), path.removesuffix(SUMS)
        below = {name.removeprefix(prefix): new for name, new in changed.items() if name.startswith(prefix)}
        rewritten = rewrite_sums(text, below)
        if rewritten != text:
            found[path] = changed[path] = rewritten.encode()
    return found


def _bytes_of(content: Content) -> bytes:
    return read_regular(content, MAX_TEXT_BYTES) if isinstance(content, Path) else content


def _run_files(source: Source, with_rollouts: bool, remarks: list[str]) -> dict[str, Content]:
    """What describes the run, below `run/`; texts without secrets and places."""
    if not (run_dir := source.run_dir):
        raise UserError(f"{source.weights} lies in no run's directory. `--what weights` uploads the weights alone.")
    found: dict[str, Content] = {}
    for path in _find(run_dir, RUN_FILES):
        content: Content = path
        if path.suffix in (".toml", ".json", ".jsonl") and path.name != NUMBERS:
            text = read_regular(path, MAX_TEXT_BYTES).decode("utf-8")
            clean = shareable(text)
            content = path if clean == text else clean.encode()
        found[f"run/{path.relative_to(run_dir).as_posix()}"] = content
    rollouts = _find(run_dir, ROLLOUTS)
    if not with_rollouts and rollouts:
        remarks.append(f"{len(rollouts)} files of rollouts stay here; --rollouts uploads them too: read some first")
    for path in rollouts if with_rollouts else ():
        _check_rollouts(path)
        found[f"run/{path.relative_to(run_dir).as_posix()}"] = path
    return found


def _find(run_dir: Path, patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(run_dir.glob(pattern)) if path.is_file()]


def _check_rollouts(path: Path) -> None:
    """Raise UserError if a conversation has something of the form of a key."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if has_secret(line):
                raise UserError(
                    f"{path}:{number} has something that looks like a key, and nothing was uploaded. Take the file out "
                    "of the run's directory, or upload without `--rollouts`."
                )
