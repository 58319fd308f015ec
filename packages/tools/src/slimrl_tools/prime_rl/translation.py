"""Translates a settings file of prime-rl into slimrl's settings, with a report in which every key of it stands."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slimrl.config.reading.schema import Path, Spec, spell
from slimrl.config.reading.sources import Setting, show
from slimrl.config.reading.values import read_value
from slimrl.errors import UserError
from slimrl_tools.prime_rl.rl_keys import RL_KEYS
from slimrl_tools.prime_rl.rules import Impossible, NotNeeded, Renamed, Table, find_outcome, is_listed, name_of
from slimrl_tools.prime_rl.sft_keys import SFT_KEYS

TABLES: Mapping[str, Table] = {"rl": RL_KEYS, "probe": RL_KEYS, "sft": SFT_KEYS}
# Sections of slimrl's that prime-rl also takes as a plain value: a model by its name, `--ckpt` to turn them on.
SECTIONS_AS_VALUES = (("model",), ("ckpt",), ("wandb",))
UNKNOWN = "neither slimrl nor this translation knows this key"

# What a file of prime-rl leaves open has another value there than here: theirs, and ours.
DEFAULTS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "rl": {
        "seq_len": ("2048", "1024"),
        "orchestrator.batch_size": ("128", "64"),
        "orchestrator.rollouts_per_example": ("1, and 16 since v0.6", "8"),
        "orchestrator.sampling.max_tokens": ("as long as the context", "64"),
        "orchestrator.max_turns": ("as the environment says", "10"),
        "trainer.optim.lr": ("1e-6", "1e-5"),
        "trainer.optim.weight_decay": ("0.01", "0"),
        "trainer.optim.beta2": ("0.999", "0.99"),
        "trainer.loss.type": ("its own, which masks tokens", "aipo, which caps the ratio"),
    },
    "sft": {
        "seq_len": ("128", "1024"),
        "batch_size": ("128", "32"),
        "optim.lr": ("1e-6", "1e-5"),
        "optim.weight_decay": ("0.01", "0"),
        "optim.beta2": ("0.999", "0.99"),
    },
}


@dataclass(frozen=True, slots=True)
class Translation:
    """A file in slimrl's terms. `settings` are what it says here; the four lists have every key of the file, as lines
    for a reader."""

    command: str
    settings: Sequence[Setting]
    taken: Sequence[str] = ()
    renamed: Sequence[str] = ()
    not_needed: Sequence[str] = ()
    impossible: Sequence[str] = ()
    left_open: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """The report: the lists that are not empty, and the defaults that differ."""
        for title, entries in (
            ("taken as it is", self.taken),
            ("renamed", self.renamed),
            ("not needed here", self.not_needed),
            ("cannot be done", self.impossible),
            ("not in the file, and another default here", self.left_open),
        ):
            if entries:
                yield f"{title}:"
                yield from (f"  {entry}" for entry in entries)

    def refuse_impossible(self, name: str) -> None:
        """Raises UserError that lists the impossible keys, if the source called `name` has any."""
        if self.impossible:
            entries = "\n".join(f"- {entry}" for entry in self.impossible)
            raise UserError(
                f"{name} has names of prime-rl's, and asks for what slimrl cannot do:\n{entries}\n"
                "Remove these keys, or change them."
            )


def is_foreign(source: Sequence[Setting], command: str, is_known: Callable[[Path], bool]) -> bool:
    """Whether a file is written for prime-rl: it has a key that prime-rl has and slimrl has not, or an environment with
    an owner. `is_known` tells which keys slimrl has."""
    if command not in TABLES:
        return False
    table = TABLES[command]
    return any(
        (not is_known(one.path) and is_listed(table, one.path))
        or ("env" in one.path and one.path[-1] == "id" and re.fullmatch(r"[\w.-]+/[\w.@-]+", str(one.value)))
        or (one.path in SECTIONS_AS_VALUES and not isinstance(one.value, (dict, list)))
        for one in whole_values(source)
    )


def translate(source: Sequence[Setting], command: str, is_known: Callable[[Path], bool]) -> Translation:
    """The settings of a file that `is_foreign`, in slimrl's terms.

    Nothing is passed over: a key that neither slimrl nor the table has is among those that cannot be done.
    """
    values = list(whole_values(source))
    file = {one.path: one.value for one in values}
    # What is not converted keeps the text of its flag: `123` may be a name.
    texts = {one.path: one for one in source if one.kind != "file"}
    settings: list[Setting] = []
    lists: dict[str, list[str]] = {"taken": [], "renamed": [], "not_needed": [], "impossible": []}
    for one in values:
        name = f"{name_of(one.path)} = {show(one.value)}" if one.value != {} else f"[{name_of(one.path)}]"
        match find_outcome(TABLES[command], one.path, one.value, file):
            case Renamed(path, value, note) if (path, value) != (one.path, one.value):
                is_text = value is one.value and one.path in texts
                settings.append(replace(texts[one.path], path=path) if is_text else Setting(path, value, one.origin))
                lists["renamed"].append(f"{name} -> {spell(path)} = {show(value)}{f' ({note})' if note else ''}")
            case NotNeeded(why):
                lists["not_needed"].append(f"{name}: {why}")
            case Impossible(why):
                lists["impossible"].append(f"{name} ({one.origin}): {why}")
            case None if not is_known(one.path):
                lists["impossible"].append(f"{name} ({one.origin}): {UNKNOWN}")
            case _:
                settings.append(texts.get(one.path, one))
                lists["taken"].append(name)
    settings += _additions(settings)
    said = {spell(one.path) for one in settings}
    left_open = [
        f"{key}: {theirs} there, {ours} here"
        for key, (theirs, ours) in DEFAULTS["sft" if command == "sft" else "rl"].items()
        if key not in said and source[0].kind == "file"  # flags and variables are never the whole of the settings
    ]
    return Translation(command, settings, **lists, left_open=left_open)


def whole_values(source: Sequence[Setting]) -> Iterator[Setting]:
    """The values of a file with lists of plain values in one piece, and the headers of sections that hold nothing.

    The text of a flag or a variable is read as a literal.
    """
    below: dict[Path, list[Setting]] = {}
    for one in source:
        below.setdefault(one.path[:-1], []).append(one)
    inside: set[Path] = set()
    for one in source:
        children = below.get(one.path, [])
        if one.path in inside or (one.value == {} and children):
            continue
        if one.value == [] and children:
            if any(child.value in ({}, []) for child in children):
                continue  # a list of sections: each is taken apart
            inside |= {child.path for child in children}
            yield replace(one, value=[child.value for child in children])
        else:
            yield one if one.kind == "file" else replace(one, value=read_value(one, Spec(Any)), kind="file")


def _additions(settings: Sequence[Setting]) -> list[Setting]:
    """What follows from the keys together: the type of a teacher or of data, and the rank of an adapter."""
    keys = {one.path: one for one in settings}
    more: list[Setting] = []

    def add(path: Path, value: Any, because: Path) -> None:
        if path not in keys:
            more.append(Setting(path, value, keys[because].origin))

    if ("teacher", "base_url") in keys:
        add(("teacher", "type"), "server", ("teacher", "base_url"))
    elif ("teacher", "name") in keys:
        add(("teacher", "type"), "model", ("teacher", "name"))
    if ("data", "name") in keys:
        add(("data", "type"), "hub", ("data", "name"))
    for path in keys:
        if path[:2] == ("model", "lora"):
            add(("model", "lora", "rank"), 16, path)  # the default of both their files and their hosted runs
            break
    return more
