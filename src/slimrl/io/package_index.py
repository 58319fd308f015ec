"""The package index that pip or uv is set to here, and where a file lies in it (PEP 503). Downloads no file.

An index is an address of HTTP or a `file://` directory. Which one it is follows the variables and configuration files
of pip and uv; who has set nothing means PyPI.
"""

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from slimrl.errors import UserError
from slimrl.io.download import Unreachable, open_url, without_login

PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The indexes to ask, in this order, and a file or directory of certificates to trust beside the usual ones."""

    urls: tuple[str, ...]
    certificates: str = ""


def index_settings(environ: Mapping[str, str], home: Path) -> IndexSettings:
    """Return the settings that pip and uv would go by; variables come before files. Raises UserError.

    >>> index_settings({"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "http://localhost/simple"}, Path("/nowhere"))
    IndexSettings(urls=('http://localhost/simple',), certificates='')
    """
    pip, uv = _pip_options(environ, home), _uv_options(environ, home)
    certificates = pip.get("cert", "") or environ.get("REQUESTS_CA_BUNDLE", "")
    if pip.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return IndexSettings((), certificates)
    first = [environ.get("UV_DEFAULT_INDEX"), environ.get("UV_INDEX_URL"), pip.get("index-url"), *uv["default"], PYPI]
    more = [environ.get("UV_INDEX", ""), environ.get("UV_EXTRA_INDEX_URL", ""), pip.get("extra-index-url", "")]
    urls = [next(url for url in first if url), *" ".join([*more, *uv["extra"]]).split()]
    # uv's indexes may have a name, as in `corporate=https://...`.
    return IndexSettings(tuple(dict.fromkeys(re.sub(r"^[\w.-]+=", "", url) for url in urls)), certificates)


def find_file(index: str, project: str, filename: str, certificates: str) -> str:
    """Return the address of a project's file. Raises Unreachable if the index does not answer, or does not have it."""
    page = f"{index.rstrip('/')}/{project}/"
    with open_url(page, certificates) as response:
        links = _Links()
        links.feed(response.read().decode("utf-8", "replace"))
        base = response.geturl()
    for link in links.found:
        if unquote(urlsplit(link).path).rpartition("/")[2] == filename:
            return _with_login_of(page, urljoin(base, link))
    raise Unreachable(f"{without_login(page)} does not list {filename}")


class _Links(HTMLParser):
    """Collects the targets of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _with_login_of(page: str, url: str) -> str:
    """Return the address with the user and password of the index if the file lies on the index's own host."""
    index, file = urlsplit(page), urlsplit(url)
    if "@" not in index.netloc or (index.scheme, index.hostname, index.port) != (file.scheme, file.hostname, file.port):
        return url
    return file._replace(netloc=index.netloc).geturl()


def _pip_options(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return pip's options: a later file overrides an earlier one, and a variable all files."""
    parser = configparser.RawConfigParser(strict=False)
    chosen = environ.get("PIP_CONFIG_FILE", "")
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    shared = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    files = [
        *(Path(directory) / "pip/pip.conf" for directory in ("/Library/Application Support", *shared)),
        Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        *(directory / "pip/pip.conf" for directory in (config, home / "Library/Application Support")),
        Path(sys.prefix, "pip.conf"),
        Path(chosen),
    ]
    for path in [] if chosen == os.devnull else files:
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:  # whose text may quote a password
            raise UserError(f"pip's configuration {path} cannot be read. `pip config debug` says more.") from error
    options: dict[str, str] = {}
    for section in ("global", "install", "download"):
        options |= dict(parser.items(section)) if parser.has_section(section) else {}
    for name in ("index-url", "extra-index-url", "cert", "no-index"):
        if value := environ.get(f"PIP_{name.replace('-', '_').upper()}"):
            options[name] = value
    return options


def _uv_options(environ: Mapping[str, str], home: Path) -> dict[str, list[str]]:
    """Return the `default` index, if one is set, and the `extra` ones of uv's own files."""
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    paths = [Path(environ.get("UV_CONFIG_FILE") or config / "uv/uv.toml"), Path("/etc/uv/uv.toml")]
    options: dict[str, list[str]] = {"default": [], "extra": []}
    for path in filter(Path.is_file, paths):
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"uv's configuration {path} cannot be read: {error}. Mend or remove it.") from error
        for table in (content, content.get("pip", {})):
            options["default"] += [one["url"] for one in table.get("index", []) if one.get("default")]
            options["default"] += [table["index-url"]] if "index-url" in table else []
            options["extra"] += [one["url"] for one in table.get("index", []) if not one.get("default")]
            options["extra"] += table.get("extra-index-url", [])
    return options
