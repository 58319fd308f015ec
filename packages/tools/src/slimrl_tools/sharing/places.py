"""Takes the places of this machine out of texts that are shared: the directories of its paths, and hosts of servers.

A value is changed where its key says that it is a path or an address, or where all of it is an absolute path. Any other
text stays as it is: a prompt without one of its words is another prompt.
"""

import json
import re
from collections.abc import Iterator

from slimrl.io.urls import is_this_machine

HOST = "host.invalid"  # a name that no network has (RFC 2606), in an address that is still one
# Paths by their beginning: POSIX, a home, Windows, a share of a network, and addresses of files, which have no host.
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
OF_TEXT = re.compile(r"(.*_)?(stop|pattern|regex)s?")  # of these a slash at the beginning makes no path
# TOML and JSON: comments, keys, and strings.
STRING = r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'"
TOKEN = re.compile(
    rf"(?P<comment>\#[^\n]*)|(?P<key>{STRING}|(?<![\w-])[\w-]+)(?P<sign>\s*[=:])"
    rf'|(?P<text>"""(?:\\.|[^\\])*?"{{3,5}}|\'\'\'.*?\'{{3,5}}|{STRING})',
    re.DOTALL,
)


def without_places(text: str) -> str:
    """A text in TOML or JSON without places.

    >>> without_places('data_dir = "/home/me/data"  # /home/me/own.toml:3')
    'data_dir = "data"  # own.toml:3'
    >>> without_places('{"prompt": "Say yes / or /b/c here", "base_url": "http://10.1.2.3:8000/v1"}')
    '{"prompt": "Say yes / or /b/c here", "base_url": "http://host.invalid:8000/v1"}'
    """
    return "".join(_pieces(text))


def shorten_value(key: str, value: str) -> str:
    """The value of a key without places.

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
    """A text for readers, which no program reads as settings, without the directories of the paths in it.

    >>> prose_without_places("It loads `/home/me/my cache/base`, or ~/own, and/or no /other.")
    'It loads `base`, or own, and/or no /other.'
    """
    return QUOTED_PATH.sub(lambda found: _last_part(found[0]), text)


def _pieces(text: str) -> Iterator[str]:
    """The text in order, in pieces, of which comments and strings are without places."""
    key, end = "", 0
    for found in TOKEN.finditer(text):
        yield text[end : found.start()]
        end = found.end()
        if found["comment"]:  # of config.toml: where a setting came from, or several such places
            origins = [shorten_value("path", origin) for origin in found["comment"].removeprefix("# ").split(", ")]
            sign = "# " if found["comment"].startswith("# ") else ""
            yield sign + prose_without_places(", ".join(origins))
        elif found["key"]:
            key = _content(found["key"])
            yield _shortened("", found["key"]) + found["sign"]
        else:
            yield _shortened(key, found["text"])
    yield text[end:]


def _shortened(key: str, literal: str) -> str:
    """The literal as it was, or a new one where its value has a place in it."""
    content = _content(literal)
    short = shorten_value(key, content)
    if short == content:
        return literal
    return f"'{short}'" if literal == f"'{content}'" else json.dumps(short, ensure_ascii=False)


def _content(literal: str) -> str:
    """What a string stands for; a bare key stands for itself."""
    for quotes in ('"""', "'''", "'"):
        if literal.startswith(quotes) and literal.endswith(quotes):
            return literal.removeprefix(quotes).removesuffix(quotes)
    try:
        return str(json.loads(literal)) if literal.startswith('"') else literal
    except ValueError:  # TOML has escapes that JSON has not
        return literal[1:-1]


def _hide_host(key: str, value: str) -> str:
    """The address with a placeholder as its host; one on this machine as it is. Empty if it is no address."""
    found = URL.fullmatch(value)
    if not found and (bare := HOST_AND_PORT.fullmatch(value)):
        # Without a scheme a word alone may mean anything, unless it is called a host.
        is_host = "host" in key or ":" in bare["after"] or "." in bare["host"]
        found = bare if is_host else None
    if not found:
        return ""
    return value if is_this_machine(found["host"].strip("[]")) else f"{found['before']}{HOST}{found['after']}"


def _last_part(path: str) -> str:
    """The name at the end of an absolute path, which says what it is; the rest is this machine's own."""
    is_windows = re.match(r"[A-Za-z]:[\\/]|\\\\", path) is not None
    parts = [part for part in re.split(r"[\\/]" if is_windows else "/", path) if part]
    if parts[:-1] in (["home"], ["Users"]):
        return "~"  # the last part is somebody's name
    return parts[-1] if len(parts) > 1 else path
