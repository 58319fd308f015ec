"""Removes private information from data before an upload: secrets, directories of paths, and hosts of servers.

A value is changed if its key refers to a path or an address, or if the whole value is an absolute path. Other texts,
such as prompts, stay unchanged, because every word of a prompt can matter.
"""

import re
from pathlib import PureWindowsPath
from typing import Any

from slimrl.io.secrets import HIDDEN, names_secret, redact
from slimrl.io.urls import is_this_machine

HOST = "host.invalid"  # replaces a host in an address; no network has this name (RFC 2606)
# The starts of absolute paths: POSIX, a home, Windows, a network share, and addresses of files, which have no host.
ABSOLUTE = r"(?:/|~[\w.-]*/|[A-Za-z]:[\\/]|\\\\|file:/+|[A-Za-z][A-Za-z0-9+.-]+:///)"
PATH = re.compile(rf"{ABSOLUTE}[^\n]*")
PATH_WITHOUT_SPACES = re.compile(rf"{ABSOLUTE}\S*")
ADDRESS = re.compile(
    r"(?P<before>(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^/?#\s]*@)?)"
    r"(?P<host>\[[^\]]*\]|[^/:?#\\\s]+)(?P<after>(?::\d*)?(?:[/?#]\S*)?)"
)
OF_PATH = re.compile(
    r"(.*_)?(path|dir|directory|folder|file|root|cache|program|weights|model|name|id|baseline|corpus|questions)s?"
)
OF_ADDRESS = re.compile(r"(.*_)?(url|uri|host|hostname|address|endpoint|server|proxy)s?")
OF_TEXT = re.compile(r"(.*_)?(stop|pattern|regex)s?")  # values of these keys are never paths, even with a leading slash


def shareable(value: Any, key: str = "") -> Any:
    """Return nested data without secrets, directories and hosts. `key` is the key of `value`.

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


def shorten_value(key: str, value: str) -> str:
    """Return the value of a key without directories and hosts. The host of an address is replaced by a placeholder,
    unless the host is this machine. An absolute path is cut to its last part. A path with spaces is recognised only if
    the key refers to a path.

    >>> shorten_value("name", "~/models/own model")
    'own model'
    >>> shorten_value("note", "file:///home/me/x"), shorten_value("note", "/b c/d")
    ('x', '/b c/d')
    """
    key = key.lower().replace("-", "_")
    found = ADDRESS.fullmatch(value) if OF_ADDRESS.fullmatch(key) else None
    # A single word without a scheme counts as a host only if its key names a host.
    if found and (found["scheme"] or "host" in key or ":" in found["after"] or "." in found["host"]):
        is_here = is_this_machine(found["host"].strip("[]"))
        return value if is_here else f"{found['before']}{HOST}{found['after']}"
    if (PATH if OF_PATH.fullmatch(key) else PATH_WITHOUT_SPACES).fullmatch(value) and not OF_TEXT.fullmatch(key):
        return _last_part(value)
    return value


def _last_part(path: str) -> str:
    """Return the last part of an absolute path. The other parts would reveal facts about this machine."""
    if re.fullmatch(r"/*[^/\\]*", path):
        return path  # such as `/think`, which may be no path
    parsed = PureWindowsPath(path)  # it knows both kinds of slashes
    is_home = parsed.parent.name in ("home", "Users")
    return "~" if is_home else parsed.name or "."  # the last part of a home is somebody's name
