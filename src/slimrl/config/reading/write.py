"""A resolved configuration as TOML: what `--dry-run` prints and what every run directory keeps as `config.toml`.

Every setting is written, the defaults too, and what is not a default ends in a comment that says where it came from.
The text loads back to an equal configuration, but for `resume`: that is a wish for one start. Written down, it would
make a run that reuses the file with another `output_dir` continue whatever is there, without being asked to. A secret
is not written either.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slimrl.config.base import SECRET, Config
from slimrl.config.reading.load import C, Resolved
from slimrl.config.reading.schema import field_names
from slimrl.errors import UserError

FILE_NAME = "config.toml"
OF_ONE_START = "resume"


def config_toml(resolved: Resolved[C]) -> str:
    """The whole configuration as TOML; its first line is the command that it belongs to."""
    header = f"# slimrl {resolved.config.command} @ {FILE_NAME}"
    return "\n".join([header, *_section(resolved.config, "", resolved.provenance)]) + "\n"


def write_config(resolved: Resolved[C], run_dir: Path) -> Path:
    """Writes `run_dir/config.toml`, whole or not at all; creates the directory. Returns the file's path."""
    path = run_dir / FILE_NAME
    partial = path.with_suffix(".toml.partial")
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        partial.write_text(config_toml(resolved), encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise UserError(
            f"{path}: cannot be written: {error.strerror}. Choose another directory with --output_dir."
        ) from None
    return path


def _section(section: Config, name: str, provenance: Mapping[str, str]) -> Iterator[str]:
    """The plain values of a section, then the sections inside it, each under its header."""
    values = {key: getattr(section, key) for key in field_names(type(section))}
    inner = {key: value for key, value in values.items() if _is_section(value)}
    for key, value in values.items():
        if name + key == SECRET and value:
            yield f"# {SECRET} is set, and not written here{_comment(SECRET, provenance)}"
        elif key not in inner and name + key != OF_ONE_START:
            yield f"{key} = {_literal(value)}{_comment(name + key, provenance)}"
    for key, value in inner.items():
        if isinstance(value, Config):
            yield from ("", f"[{name}{key}]")
            yield from _section(value, f"{name}{key}.", provenance)
            continue
        for index, item in enumerate(value):
            yield from ("", f"[[{name}{key}]]")
            yield from _section(item, f"{name}{key}.{index}.", provenance)


def _is_section(value: Any) -> bool:
    return isinstance(value, Config) or (isinstance(value, list) and any(isinstance(item, Config) for item in value))


def _comment(key: str, provenance: Mapping[str, str]) -> str:
    """Where the value came from; more than one place if the entries of a dictionary or list did."""
    origins = [origin for path, origin in provenance.items() if path == key or path.startswith(f"{key}.")]
    return f"  # {' '.join(', '.join(dict.fromkeys(origins)).split())}" if origins else ""


def _literal(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{_key(key)} = {_literal(item)}' for key, item in value.items())}}}"
        case _:
            return repr(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _literal(key)
