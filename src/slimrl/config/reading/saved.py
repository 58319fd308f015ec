"""Writes the settings of a run to its file `config.toml`, and reads them again. `--dry-run` prints the same text.

All settings are written, including defaults. A comment after each value that is not a default shows its origin. If a
run is resumed from this file, the comment still shows the first origin. The file can be loaded to an equal
configuration, with two exceptions. `resume` is not written, because it is valid only for one start. Secrets are not
written.
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
from slimrl.config.reading.formats import flatten
from slimrl.config.reading.load import C, Resolved, load_file
from slimrl.config.reading.names import current_path, is_gone, settings_of_commands
from slimrl.config.reading.schema import field_names
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError, nearest
from slimrl.io.files import replace_file
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir

OF_ONE_START = "resume"
MAX_BYTES = 2**24
DIGEST = "# SHA-256 of the lines above: "
COMMENT = "  # "  # separates a value and its origin
HEADER = re.compile(r"# slimrl (\w+) @")
# Settings that are not part of a run's recipe: names of paths, programs, machines and runs, and the monitors.
NO_RECIPE = re.compile(
    r"(seed|output_dir|resume|command|plan|(wandb|ckpt|deployment|monitors|trainer\.guard)\..*"
    r"|.*_gpu_ids|model\.(device|num_threads)|orchestrator\.env\.\d+\.name"
    r"|inference\.(base_url|api_key_variable|vllm_program|port|timeout_s|max_slots))"
)


def config_toml(resolved: Resolved[C]) -> str:
    """Return the whole configuration as TOML. The first line is a comment with the command that can read it."""
    header = f"# slimrl {resolved.config.command} @ config.toml"
    return "\n".join([header, *_section(resolved.config, "", resolved.provenance)]) + "\n"


def write_config(resolved: Resolved[C], run_dir: Path) -> Path:
    """Create the directory, and write its `config.toml` atomically. Return the path. Raise UserError if this fails."""
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
    """Return the settings with their first origins. In a resumed run, the origin of each setting is the run's own file
    `path`. Replace it with the first origin, from the comment in this file. If the file was edited, change nothing."""
    text = read_regular(path, MAX_BYTES).decode("utf-8", "replace") if path.is_file() else ""
    if DIGEST not in text or is_changed(path):
        return resolved
    lines, provenance = text.split("\n"), dict[str, str]()
    for key, origin in resolved.provenance.items():
        file, _, number = origin.rpartition(":")
        if not number.isdecimal() or Path(file).resolve() != path.resolve():
            provenance[key] = origin
        elif COMMENT in (line := lines[int(number) - 1]):  # a default value has no comment
            provenance[key] = line.rpartition(COMMENT)[2]
    return replace(resolved, provenance=provenance)


def _digest_line(text: str) -> str:
    """Return the last line of a run's file: a comment with the digest of `text`."""
    return f"{DIGEST}{hashlib.sha256(text.encode()).hexdigest()}\n"


def _section(section: Config, name: str, provenance: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a section: its plain values, then its subsections, each below its header."""
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
    """Return a comment with the origin of a value, or with all origins in a dictionary or list; empty for a default."""
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


def read_run_config(run_dir: Path) -> CommandConfig:
    """Return the settings of a run. Settings that did not exist in the run's version of slimrl get the present
    defaults. Raise UserError if the file is missing, cannot be read, or does not start with a command."""
    path = RunDir(run_dir).settings
    if not path.is_file():
        raise UserError(f"{run_dir} has no {path.name}: it is no run of slimrl. Name the `output_dir` of a run.")
    command = _command_in(read_regular(path, MAX_BYTES).decode("utf-8", "replace"))
    kinds = settings_of_commands(lambda text: None)
    if (kind := next((kind for kind in kinds if kind.command == command), None)) is None:
        raise UserError(
            f"{path} does not begin with the command that wrote it, as in `# slimrl rl @ {path.name}`."
            f"{nearest(command, COMMANDS) if command else ''}"
        )
    return load_file(kind, path)


def read_flat_settings(run_dir: Path, command: str) -> dict[str, Any]:
    """Return the settings in a run's file by dotted key. Defaults are not added. Settings that were renamed later have
    their new names. Raise UserError if the file cannot be read, or belongs to another command."""
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
    found = [(tuple(key.split(".")), value) for key, value in by_dotted_key(tree).items()]
    return {".".join(current_path(command, path)): value for path, value in found if not is_gone(path, value)}


def _command_in(text: str) -> str:
    """Return the command in the first line of a config.toml; empty if the line has no command."""
    found = HEADER.match(text)
    return found[1] if found else ""


def flat_settings(config: CommandConfig) -> dict[str, Any]:
    """Return the settings by dotted key, such as `trainer.optim.lr` and `orchestrator.env.0.id`."""
    return by_dotted_key(config.model_dump(mode="json"))


def by_dotted_key(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings by dotted key. A list is one value, except a list of tables, whose keys have the index."""

    def is_value(item: Any) -> bool:
        return isinstance(item, list) and not any(isinstance(one, Mapping) for one in item)

    found = flatten(tree, is_whole=is_value)
    sections = {path[:-1] for path, _ in found}
    return {".".join(path): value for path, value in found if path not in sections}
