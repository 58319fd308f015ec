"""The settings that every run directory keeps as `config.toml`: written as TOML, as `--dry-run` prints them, and read
again.

Every setting is written, including defaults. A comment after each value that is not a default shows its origin; if a
run is resumed from this file, the comment shows the first origin. The text loads back to an equal configuration, with
two exceptions. `resume` is not written, because it applies to one start only: another run that reuses the file would
continue from its own directory. And a secret is not written.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slimrl.config.base import SECRET, CommandConfig, Config
from slimrl.config.reading.load import C, Resolved, load_file
from slimrl.config.reading.names import current_path
from slimrl.config.reading.schema import field_names
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError, nearest
from slimrl.io.files import replace_file
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir

OF_ONE_START = "resume"
MAX_BYTES = 2**24
DIGEST = "# SHA-256 of the lines above: "
COMMENT = "  # "  # between a value and its origin
HEADER = re.compile(r"# slimrl (\w+) @")
# Settings that are not part of the recipe: they name paths, programs or machines, monitor a run, or distinguish runs.
NO_RECIPE = re.compile(
    r"(seed|output_dir|resume|command|plan|(wandb|trackio|tensorboard|ckpt|deployment|monitors|trainer\.guard)\..*"
    r"|.*_gpu_ids|model\.(device|num_threads)|orchestrator\.(max_rollouts_gb|env\.\d+\.name)"
    r"|inference\.(base_url|api_key_variable|vllm_program|port|timeout_s|max_slots))"
)


def config_toml(resolved: Resolved[C]) -> str:
    """Return the whole configuration as TOML; its first line is the command that reads it."""
    header = f"# slimrl {resolved.config.command} @ config.toml"
    return "\n".join([header, *_section(resolved.config, "", resolved.provenance)]) + "\n"


def write_config(resolved: Resolved[C], run_dir: Path) -> Path:
    """Write `run_dir/config.toml` atomically, and create the directory. Return the path of the file. Raise UserError if
    it cannot be written."""
    path = RunDir(run_dir).settings
    text = config_toml(_with_first_origins(resolved, path))
    replace_file(path, [text.encode(), _digest_line(text).encode()])
    return path


def is_changed(path: Path) -> bool:
    """Return True if a file from `write_config` was edited or damaged later. Files of earlier versions, without a
    digest, count as unchanged."""
    content = read_regular(path, MAX_BYTES)
    text, start, _ = content.decode("utf-8", "replace").rpartition(DIGEST)
    return bool(start) and content != (text + _digest_line(text)).encode()


def _with_first_origins(resolved: Resolved[C], path: Path) -> Resolved[C]:
    """A resumed run reads its own file at `path`. Replace each origin in that file by the first origin, which the
    file's comment names. If the file was edited, keep the file as the origin."""
    text = read_regular(path, MAX_BYTES).decode("utf-8", "replace") if path.is_file() else ""
    if DIGEST not in text or is_changed(path):
        return resolved
    lines, provenance = text.split("\n"), dict[str, str]()
    for key, origin in resolved.provenance.items():
        file, _, number = origin.rpartition(":")
        if not number.isdecimal() or Path(file).resolve() != path.resolve():
            provenance[key] = origin
        elif COMMENT in (line := lines[int(number) - 1]):  # a default has no comment
            provenance[key] = line.rpartition(COMMENT)[2]
    return replace(resolved, provenance=provenance)


def _digest_line(text: str) -> str:
    """Return the last line of a run's file: a comment with the digest of `text`."""
    return f"{DIGEST}{hashlib.sha256(text.encode()).hexdigest()}\n"


def _section(section: Config, name: str, provenance: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a section: its plain values, then the sections inside it, each under its header."""
    # TOML needs the plain values of a table before the headers of the tables inside it.
    values = {key: getattr(section, key) for key in field_names(type(section))}
    inner = {key: value for key, value in values.items() if _is_section(value)}
    for key, value in values.items():
        if name + key == SECRET and value:
            yield f"# {SECRET} is set, and not written here{_comment(SECRET, provenance)}"
        elif key not in inner and name + key != OF_ONE_START:
            yield f"{key} = {toml_literal(value)}{_comment(name + key, provenance)}"
    for key, value in inner.items():
        if isinstance(value, Config):
            yield from ("", f"[{name}{key}]")
            yield from _section(value, f"{name}{key}.", provenance)
            continue
        for index, item in enumerate(value):
            yield from ("", f"[[{name}{key}]]")
            yield from _section(item, f"{name}{key}.{index}.", provenance)


def _is_section(value: Any) -> bool:
    """Return True if a value is a section or a list of sections."""
    return isinstance(value, Config) or (isinstance(value, list) and any(isinstance(item, Config) for item in value))


def _comment(key: str, provenance: Mapping[str, str]) -> str:
    """Return a comment with the origin of a value, or with all origins of the entries of a dictionary or list."""
    origins = [origin for path, origin in provenance.items() if path == key or path.startswith(f"{key}.")]
    return f"{COMMENT}{' '.join(', '.join(dict.fromkeys(origins)).split())}" if origins else ""


def toml_literal(value: Any) -> str:
    """Return the value as a TOML literal."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # TOML accepts JSON's escapes; only DEL must be escaped in TOML and not in JSON.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return f"[{', '.join(map(toml_literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{toml_key(key)} = {toml_literal(item)}' for key, item in value.items())}}}"
        case _:
            return repr(value)


def toml_key(key: str) -> str:
    """Return the key in TOML syntax, in quotes if needed."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_literal(key)


def read_run_config(run_dir: Path, default: type[CommandConfig] | None = None) -> CommandConfig:
    """Return the settings of a run. Settings that its version of slimrl did not have get today's defaults. `default` is
    the class of the settings if the first line of config.toml names no command. Raise UserError if the file is missing
    or cannot be read."""
    path = RunDir(run_dir).settings
    if not path.is_file():
        raise UserError(f"{run_dir} has no {path.name}: it is no run of slimrl. Name the `output_dir` of a run.")
    command = _command_in(read_regular(path, MAX_BYTES).decode("utf-8", "replace"))
    if (kind := COMMANDS.get(command, default)) is None:
        raise UserError(
            f"{path} does not begin with the command that wrote it, as in `# slimrl rl @ {path.name}`."
            f"{nearest(command, COMMANDS) if command else ''}"
        )
    return load_file(kind, path)


def read_flat_settings(run_dir: Path, command: str) -> dict[str, Any]:
    """Return the settings in a run's file by dotted key, without defaults. Renamed settings have their new names. Raise
    UserError if the file cannot be read, or belongs to another command."""
    path = RunDir(run_dir).settings
    text = read_regular(path, MAX_BYTES).decode("utf-8", "replace")
    if (kept := _command_in(text) or command) != command:
        raise UserError(
            f"{run_dir} holds a run of `{kept}`, not of `{command}`. Give `--output_dir` another directory."
        )
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: {error}. Restore the file, or remove it to resume without a comparison.") from None
    return {".".join(current_path(command, tuple(key.split(".")))): value for key, value in flatten(tree)}


def _command_in(text: str) -> str:
    """Return the command that the first line of a config.toml names; empty if it names none."""
    found = HEADER.match(text)
    return found[1] if found else ""


def flat_settings(config: CommandConfig) -> dict[str, Any]:
    """Return the settings by dotted key, such as `trainer.optim.lr` and `orchestrator.env.0.id`."""
    return dict(flatten(config.model_dump(mode="json")))


def flatten(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a pair of dotted key and value for each setting in a tree. In a list of tables, the index is a part of the
    key."""
    match value:
        case Mapping() if value or not key:
            for name, item in value.items():
                yield from flatten(item, f"{key}.{name}" if key else str(name))
        case list() if any(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield from flatten(item, f"{key}.{number}")
        case _:
            yield key, value
