"""The resolved configuration as TOML, which `--dry-run` prints and every run directory keeps as `config.toml`.

Every setting is written, including defaults. A comment after each value that is not a default shows its origin; if a
run is resumed from this file, the comment shows the first origin. The text loads back to an equal configuration, with
two exceptions. `resume` is not written, because it applies to one start only: another run that reuses the file would
continue from its own directory. And a secret is not written.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slimrl.config.base import SECRET, Config
from slimrl.config.reading.load import C, Resolved
from slimrl.config.reading.schema import field_names
from slimrl.io.files import replace_file
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir

OF_ONE_START = "resume"
MAX_BYTES = 2**24
DIGEST = "# SHA-256 of the lines above: "
ORIGIN = re.compile(r'(?:[^"#]|"(?:[^"\\]|\\.)*")*# (.*)')  # the comment of a line; quoted text may contain `#`


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
        elif found := ORIGIN.fullmatch(lines[int(number) - 1]):  # a default has no comment
            provenance[key] = found[1]
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
    return f"  # {' '.join(', '.join(dict.fromkeys(origins)).split())}" if origins else ""


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
