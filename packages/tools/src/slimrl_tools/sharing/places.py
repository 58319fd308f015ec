"""Removes private parts from shared data: secrets, directories of paths, and hosts of servers.

A value is changed if its key names a path or an address, or if it is an absolute path as a whole. Any other text is
unchanged: a prompt that lacks one of its words is another prompt.
"""

import json
import re
import tomllib
from typing import Any

from slimrl.io.secrets import HIDDEN, names_secret, redact
from slimrl.io.urls import is_this_machine
from slimrl_tools.toml_text import toml_lines

HOST = "host.invalid"  # a name that no network has (RFC 2606), in an address that stays valid
# Paths by their start: POSIX, a home, Windows, a network share, and addresses of files, which have no host.
ABSOLUTE = r"(?:/|~[\w.-]*/|[A-Za-z]:[\\/]|\\\\|file:/+|[A-Za-z][A-Za-z0-9+.-]+:///)"
PATH = re.compile(rf"{ABSOLUTE}[^\n]*")
PATH_WITHOUT_SPACES = re.compile(rf"{ABSOLUTE}\S*")
QUOTED_PATH = re.compile(rf"(?<=[\"'`]){ABSOLUTE}[^\"'`\n]*(?=[\"'`])|(?<![^\s(=]){ABSOLUTE}[^\s\"'`,)\]]*")
URL = re.compile(r"(?P<before>[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?)(?P<host>\[[^\]]*\]|[^/:?#]+)(?P<after>\S*)")
HOST_AND_PORT = re.compile(r"(?P<before>)(?P<host>\[[^\]]*\]|[\w.-]+)(?P<after>(?::\d+)?(?:/\S*)?)")
OF_PATH = re.compile(
    r"(.*_)?(path|dir|directory|folder|file|root|cache|program|weights|model|name|id|baseline|corpus|questions)s?"
)
OF_ADDRESS = re.compile(r"(.*_)?(url|uri|host|hostname|address|endpoint|server|proxy)s?")
OF_TEXT = re.compile(r"(.*_)?(stop|pattern|regex)s?")  # a leading slash does not make values of these keys a path


def shareable(value: Any, key: str = "") -> Any:
    """Return nested data without secrets and places; `key` is the name of the value.

    >>> shareable({"data_dir": "/home/me/data", "prompt": "Say yes / or /b/c here", "api_key": "abc"})
    {'data_dir': 'data', 'prompt': 'Say yes / or /b/c here', 'api_key': '[key]'}
    """
    match value:
        case dict():
            return {shorten_value("", name): shareable(item, name) for name, item in value.items()}
        case list():
            return [shareable(item, key) for item in value]
        case str() if value:
            return HIDDEN if names_secret(key) else shorten_value(key, redact(value))
    return value


def shareable_text(text: str, suffix: str) -> str:
    """Return the text of a file without secrets and places, unchanged if it has none. Comments of TOML and damaged JSON
    are dropped."""
    match suffix:
        case ".toml":
            return "".join(f"{line}\n" for line in toml_lines(shareable(tomllib.loads(text))))
        case ".json":
            return _shareable_json(text, indent=2)
        case ".jsonl":
            return "".join(map(_shareable_json, text.splitlines(keepends=True)))
    return prose_without_places(redact(text))


def _shareable_json(text: str, indent: int | None = None) -> str:
    try:
        value = json.loads(text)
    except ValueError:  # such as the last line of a run that was killed
        return ""
    shared = shareable(value)
    return text if shared == value else json.dumps(shared, indent=indent, ensure_ascii=False) + "\n"


def shorten_value(key: str, value: str) -> str:
    """Return the value of a key without places.

    >>> shorten_value("name", "~/models/own"), shorten_value("a", "file:///home/me/x"), shorten_value("a", "/b c/d")
    ('own', 'x', '/b c/d')
    """
    key = key.lower().replace("-", "_")
    if OF_ADDRESS.fullmatch(key) and (hidden := _hide_host(key, value)):
        return hidden
    if (PATH if OF_PATH.fullmatch(key) else PATH_WITHOUT_SPACES).fullmatch(value) and not OF_TEXT.fullmatch(key):
        return _last_part(value)
    return value


def prose_without_places(text: str) -> str:
    """Return a text for readers, not for programs, without the directories of the paths in it.

    >>> prose_without_places("It loads `/home/me/my cache/base`, or ~/own, and/or no /other.")
    'It loads `base`, or own, and/or no /other.'
    """
    return QUOTED_PATH.sub(lambda found: _last_part(found[0]), text)


def _hide_host(key: str, value: str) -> str:
    """Return an address with a placeholder as its host, or unchanged if it is on this machine; empty if the value is
    not an address."""
    found = URL.fullmatch(value)
    if not found and (bare := HOST_AND_PORT.fullmatch(value)):
        # Without a scheme a single word may mean anything, unless its key names a host.
        is_host = "host" in key or ":" in bare["after"] or "." in bare["host"]
        found = bare if is_host else None
    if not found:
        return ""
    return value if is_this_machine(found["host"].strip("[]")) else f"{found['before']}{HOST}{found['after']}"


def _last_part(path: str) -> str:
    """Return the last name of an absolute path; the rest belongs to this machine."""
    is_windows = re.match(r"[A-Za-z]:[\\/]|\\\\", path) is not None
    parts = [part for part in re.split(r"[\\/]" if is_windows else "/", path) if part]
    if parts[:-1] in (["home"], ["Users"]):
        return "~"  # the last part is somebody's name
    return parts[-1] if len(parts) > 1 else path
