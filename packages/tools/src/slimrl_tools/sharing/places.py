"""Removes private information from data before an upload: secrets, directories of paths, and hosts of servers.

Only values that are a whole path or address are changed. Other texts, such as prompts, stay unchanged, because every
word of a prompt can matter.
"""

import re
from pathlib import PureWindowsPath
from typing import Any

from slimrl.io.secrets import HIDDEN, names_secret, redact
from slimrl.io.urls import is_this_machine

HOST = "host.invalid"  # replaces a host in an address; no network has this name (RFC 2606)
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#\s]*@)?)(\[[^\]]*\]|[^/:?#\\\s]+)((?::\d*)?(?:[/?#]\S*)?)")
# The starts of absolute paths: POSIX, a home, Windows, a network share, and addresses without a host.
ABSOLUTE = r"(?:/|~[\w.-]*/|[A-Za-z]:[\\/]|\\\\|[A-Za-z][A-Za-z0-9+.-]+:/+)"
PATH, PATH_WITHOUT_SPACES = re.compile(rf"{ABSOLUTE}[^\n]*"), re.compile(rf"{ABSOLUTE}\S*")
OF_PATH = re.compile(r"(.*_)?(path|dir|directory|folder|file|name)s?")
OF_HOST = re.compile(r"(.*_)?(host|hostname|server|address|endpoint)s?")


def shareable(value: Any, key: str = "") -> Any:
    """Return nested data without secrets, directories and hosts. `key` is the key of `value`.

    >>> shareable({"data_dir": "/home/me/data", "prompt": "Say yes / or /b/c here", "api_key": "abc"})
    {'data_dir': 'data', 'prompt': 'Say yes / or /b/c here', 'api_key': '[key]'}
    """
    match value:
        case dict():
            return {name: shareable(item, name) for name, item in value.items()}
        case list():
            return [shareable(item, key) for item in value]
        case str() if value:
            return HIDDEN if names_secret(key) else _without_place(key, redact(value))
    return value


def _without_place(key: str, value: str) -> str:
    """Replace the host of an address, unless it is this machine, and cut an absolute path to its last part. A path with
    spaces, and a host without a scheme, are recognised by their keys alone."""
    if found := URL.fullmatch(value):
        before, host, after = found.groups()
        return value if is_this_machine(host.strip("[]")) else f"{before}{HOST}{after}"
    if OF_HOST.fullmatch(key):
        return value if is_this_machine(value.partition(":")[0]) else HOST
    if (PATH if OF_PATH.fullmatch(key) else PATH_WITHOUT_SPACES).fullmatch(value):
        return _last_part(value)
    return value


def _last_part(path: str) -> str:
    if re.fullmatch(r"/*[^/\\]*", path):
        return path  # such as `/think`, which may be no path
    parsed = PureWindowsPath(path)  # it knows both kinds of slashes
    is_home = parsed.parent.name in ("home", "Users")
    return "~" if is_home else parsed.name or "."  # the last part of a home is somebody's name
