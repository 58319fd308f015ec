"""Random inputs of the kinds that a user gives to slimrl: settings files, flags, variables, rows, models.

Each begins as something that works, from the repository, and is damaged: as a text, by its bytes, or in its structure.
"""

import json
import random
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slimrl.config.reading.schema import leaves, spec_of, spell
from slimrl.config.run import COMMANDS

REPOSITORY = Path(__file__).parents[2]
COMMANDS_OF_FILES = ("rl", "sft", "eval", "trainer", "inference", "probe", "translate")
TEXTS = (
    *("", "0", "-1", "1e309", "nan", "inf", "true", "null", "~", "[]", "{}", "[[]]", "[{}]", "''", '""', "1979-05-27"),
    *(
        "9" * 5_000,
        "0x" + "f" * 400,
        "1_0",
        ".5",
        "1e5",
        "é",
        "\u202e",
        "\x1b[2J",
        "\ud800",
        "\ufeff",
        "\0",
        "\r",
        "\n",
    ),
    *("[" * 3_000, "{a=" * 3_000, '{"a":' * 3_000, ".".join("a" * 3_000), "a" * 5_000, "[" + "1," * 20_000 + "]"),
    *(
        '[{id="reverse-text"}]',
        '[{id="x.py:E"}]',
        "../../etc/passwd",
        "/dev/zero",
        "/proc/self/mem",
        "~root",
        "@",
        "--",
    ),
    *("http://h:99999/v1", "http://[::1/v1", "http://a@b/v1", "sk-" + "a" * 30, "*a", "&a [*a]", "<<: *a", "!!int ''"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**31, 2**63, 2**64, 10**30, 1e308, -0.0, float("inf"), float("nan"), "", "x", "\0", "\ud800"),
    *([], {}, [[]], [{}], [None], {"": 0}, {"a.b": {"c": 1}}, ["x"] * 20_000, "x" * 100_000),
)


@dataclass(frozen=True)
class Case:
    """An input: files that are written into an empty directory, and what is done with them."""

    kind: str
    argv: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)


def damage_bytes(content: bytes, rng: random.Random) -> bytes:
    """The content with some bytes changed, cut, doubled or put in."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(damaged) + 1)
        end = min(len(damaged), at + rng.choice((0, 1, 1, 4, 8, 64, 512)))
        match rng.randrange(5):
            case 0:
                damaged[at:end] = rng.randbytes(end - at)
            case 1:
                del damaged[at:end]
            case 2:
                damaged[at:at] = damaged[at:end] * rng.choice((1, 2, 50, 2_000))
            case 3:
                damaged[at:end] = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
            case 4:
                number = rng.choice((0, 1, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1, rng.getrandbits(64)))
                damaged[at : at + 8] = number.to_bytes(8, "little")
    return bytes(damaged[: 2 * 2**20])


def damage_tree(tree: Any, rng: random.Random) -> Any:
    """Nested data with a value, or a key, somewhere in it replaced."""
    if not isinstance(tree, (dict, list)) or not tree or rng.random() < 0.15:
        return rng.choice(VALUES)
    if isinstance(tree, list):
        at = rng.randrange(len(tree))
        return [*tree[:at], damage_tree(tree[at], rng), *tree[at + rng.choice((0, 1)) :]]
    key = rng.choice(list(tree))
    changed = {**tree, key: damage_tree(tree[key], rng)}
    if rng.random() < 0.1:
        changed[rng.choice(("", "\0", "a" * 300, "\u0430", "type", "args", "__class__", "id"))] = rng.choice(VALUES)
    return changed


class SettingsCases:
    """Files, flags and variables of commands that end in `--dry-run`. `foreign` are keys of another trainer."""

    def __init__(self, rng: random.Random, foreign: Sequence[str]) -> None:
        self._rng = rng
        self._texts = [
            path.read_text(encoding="utf-8")
            for folder in ("configs", "examples", "experiments")
            for path in sorted((REPOSITORY / folder).rglob("*.toml"))
        ]
        self._keys = {
            name: [spell(path) for path, _ in leaves(spec_of(config_class))] for name, config_class in COMMANDS.items()
        }
        self._foreign = foreign

    def __iter__(self) -> Iterator[Case]:
        makers: tuple[Callable[[], Case], ...] = (
            self._file,
            self._file,
            self._flags,
            self._variables,
            self._foreign_file,
        )
        while True:
            yield self._rng.choice(makers)()

    def _file(self) -> Case:
        rng = self._rng
        text = rng.choice(self._texts)
        kind = rng.choice(("toml", "yaml", "json"))
        tree = tomllib.loads(text)
        if rng.random() < 0.5:
            tree = damage_tree(tree, rng)
        if kind == "yaml":
            text = yaml.safe_dump(tree, allow_unicode=True)
        elif kind == "json":
            text = json.dumps(tree)
        content = text.encode("utf-8", "surrogatepass")
        return self._reading(f"a.{kind}", damage_bytes(content, rng) if rng.random() < 0.7 else content)

    def _foreign_file(self) -> Case:
        rng = self._rng
        lines = []
        for _ in range(rng.randrange(1, 8)):
            key = rng.choice(self._foreign).replace("**", "x").replace("*", rng.choice(("0", "x")))
            lines.append(f"{key} = {rng.choice(TEXTS) if rng.random() < 0.5 else json.dumps(rng.choice(VALUES[1:]))}")
        return self._reading("a.toml", "\n".join(lines).encode("utf-8", "surrogatepass"))

    def _reading(self, name: str, content: bytes) -> Case:
        command = self._rng.choice(COMMANDS_OF_FILES)
        argv = (command, name) if command == "translate" else (command, "@", name, "--dry-run")
        return Case("file", argv, {name: content})

    def _flags(self) -> Case:
        rng = self._rng
        command = rng.choice(list(self._keys))
        words = [command]
        for _ in range(rng.randrange(1, 6)):
            key = rng.choice(self._keys[command]) if rng.random() < 0.8 else rng.choice(TEXTS)
            key = (
                damage_bytes(key.encode("utf-8", "surrogatepass"), rng).decode("utf-8", "surrogateescape")
                if rng.random() < 0.2
                else key
            )
            words += [f"--{key}", rng.choice(TEXTS)]
        return Case("flags", tuple(word.replace("\0", "")[:100_000] for word in [*words, "--dry-run"]))

    def _variables(self) -> Case:
        rng = self._rng
        command = rng.choice(list(self._keys))
        names = [rng.choice(self._keys[command]).replace(".", "__").upper() for _ in range(rng.randrange(1, 4))]
        prefix = rng.choice(("SLIMRL_", "PRIME_"))
        environ = {
            f"{prefix}{name}": rng.choice(TEXTS).replace("\0", "").encode("utf-8", "replace").decode() for name in names
        }
        return Case("variables", (command, "--dry-run"), environ=environ)


def row_cases(rng: random.Random) -> Iterator[Case]:
    """Files of supervised data, judges' labels and games, which are read whole."""
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": "a", "tool_calls": [call], "weight": 1, "reasoning_content": "t"},
        {"role": "tool", "content": "r", "tool_call_id": "0"},
        {"role": "assistant", "content": "b"},
    ]
    whole = [
        {"messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}]},
        {"prompt": "p", "completion": "c"},
    ]
    while True:
        lines = [json.dumps(damage_tree(rng.choice(whole), rng)) for _ in range(rng.randrange(1, 4))]
        content = "\n".join(lines).encode()
        yield Case("rows", files={"a.jsonl": damage_bytes(content, rng) if rng.random() < 0.4 else content})


def gguf_cases(rng: random.Random, whole: bytes) -> Iterator[Case]:
    """Damaged GGUF files: mostly in the header."""
    header = whole.index(b"tokenizer.chat_template")
    while True:
        begin = damage_bytes(whole[:header], rng) if rng.random() < 0.6 else whole[:header]
        rest = damage_bytes(whole[header:], rng) if begin == whole[:header] else whole[header:]
        yield Case("gguf", files={"a.gguf": begin + rest})


def model_cases(rng: random.Random, directory: Path) -> Iterator[Case]:
    """Damaged directories of a model."""
    whole = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    while True:
        name = rng.choice([one for one in whole if one != "SHA256SUMS"])
        content = whole[name]
        if name.endswith(".json") and rng.random() < 0.7:
            content = json.dumps(damage_tree(json.loads(content), rng)).encode()
        elif name.endswith(".safetensors"):
            length = 8 + int.from_bytes(content[:8], "little")
            content = damage_bytes(content[:length], rng) + content[length:]
        else:
            content = damage_bytes(content, rng)
        yield Case("model", files={f"model/{one}": content if one == name else data for one, data in whole.items()})


def write_case(case: Case, directory: Path) -> None:
    """Write the files of a case, and `case.json` with what else it is."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, content in case.files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
    about = {"kind": case.kind, "argv": case.argv, "environ": case.environ}
    (directory / "case.json").write_text(json.dumps(about), encoding="utf-8")
