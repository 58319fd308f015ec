"""One file over HTTP, or from a `file://` address: with a line of progress, resumed where it was cut, and checked.

Knows nothing of packages. Proxies come from the environment, a user and password from the address or from `~/.netrc`;
neither is ever printed, nor sent on to another host.
"""

import base64
import netrc
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import certifi

from slimrl.errors import UserError
from slimrl.io.cache import say
from slimrl.io.checksums import file_sha256

TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 18
# How often progress is shown: on a terminal the line is drawn anew, elsewhere another one follows.
TERMINAL_EVERY_S, FILE_EVERY_S = 0.2, 10.0


class Unreachable(Exception):
    """An address did not answer, or not as it should; the text says which and why."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


def download(url: str, part: Path, sha256: str, certificates: str = "") -> None:
    """Fetch a file into `part`, going on behind what is there already.

    Raises Unreachable if a connection brings nothing more; `part` then keeps what has come. Raises UserError, and
    removes `part`, if the whole file has another digest. Raises OSError if it cannot be written.
    """
    while True:
        before = _size(part)
        try:
            _append(url, part, certificates)
            break
        except Unreachable as error:
            if (
                error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            ):  # nothing lies behind what is here: the digest will tell
                break
            if error.status or _size(part) <= before:
                raise
    found = file_sha256(part)
    if found != sha256:
        part.unlink()
        raise UserError(
            f"{without_login(url)} is not the file that slimrl expects: its SHA-256 is {found} instead of {sha256}. "
            "What was downloaded is deleted. Run the command again; if the same comes, the index serves another file: "
            "name one that does not in the variable PIP_INDEX_URL."
        )


@contextmanager
def open_url(url: str, certificates: str = "", first_byte: int = 0) -> Iterator[Any]:
    """Yield the response to a GET request, from `first_byte` on if the server can do that (status 206).

    Every failure of the network, within the body too, is raised as Unreachable.
    """
    shown = without_login(url)
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise Unreachable(f"{shown} is no address of http, https or file")
    headers = {"User-Agent": "slimrl", "Accept": "text/html, */*;q=0.1"}
    request = urllib.request.Request(_index_of_directory(shown), headers=headers)
    if authorization := _authorization(url):
        request.add_unredirected_header("Authorization", authorization)
    if first_byte:
        request.add_header("Range", f"bytes={first_byte}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=_tls(certificates)) as response:
            yield response
    except urllib.error.HTTPError as error:
        with error:
            raise Unreachable(f"{shown} answers with status {error.code} ({error.reason})", error.code) from error
    # Not any OSError: one of writing, in the body, is no failure of the network.
    except (urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unreachable(f"{shown} cannot be reached ({reason})") from error


def without_login(url: str) -> str:
    """Return the address without user and password.

    >>> without_login("https://me:secret@example.org/simple")
    'https://example.org/simple'
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _append(url: str, part: Path, certificates: str) -> None:
    """Add to `part` what one connection brings. Raises Unreachable if the file is not whole then."""
    with open_url(url, certificates, _size(part)) as response, part.open("ab") as file:
        start = file.tell() if response.status == HTTPStatus.PARTIAL_CONTENT else 0
        file.truncate(start)  # to nothing, if the server begins at the beginning
        length = int(response.headers.get("Content-Length") or 0)
        progress = _Progress(without_login(url), start, start + length)
        try:
            while chunk := response.read(CHUNK_BYTES):
                file.write(chunk)
                progress.add(len(chunk))
        finally:
            progress.end()
        if length and progress.here < progress.total:
            raise Unreachable(f"{without_login(url)} was cut off at byte {progress.here:,} of {progress.total:,}")


class _Progress:
    """A line on standard error says how much of a file is here."""

    def __init__(self, url: str, here: int, total: int) -> None:
        self.here, self.total = here, total
        self._start, self._began, self._shown = here, time.monotonic(), 0.0
        self._every_s, self._end = (TERMINAL_EVERY_S, "\r") if sys.stderr.isatty() else (FILE_EVERY_S, "\n")
        where = f"from byte {here:,} on " if here else ""
        parts = urlsplit(url)
        say(f"Fetching {unquote(parts.path).rpartition('/')[2]} {where}from {parts.hostname or 'this disk'} ...")

    def add(self, num_bytes: int) -> None:
        """Count what has come, and show it now and then."""
        self.here += num_bytes
        if time.monotonic() - max(self._shown, self._began) > self._every_s:
            self._shown = time.monotonic()
            self._draw(self._end)

    def end(self) -> None:
        """Show where it stands, on a line that stays."""
        self._draw("\n")

    def _draw(self, end: str) -> None:
        speed = (self.here - self._start) / 1e6 / max(time.monotonic() - self._began, 1e-3)
        share = f", {self.here / self.total:.0%} of {self.total / 1e6:.1f} MB" if self.total else ""
        print(f"  {self.here / 1e6:.1f} MB{share}, {speed:.1f} MB/s", end=f"  {end}", file=sys.stderr, flush=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _index_of_directory(url: str) -> str:
    """Return the address, or that of the `index.html` in it where it is a directory on this disk, as pip does."""
    path = Path(urllib.request.url2pathname(urlsplit(url).path))
    return f"{url.rstrip('/')}/index.html" if url.startswith("file:") and path.is_dir() else url


def _authorization(url: str) -> str:
    """Return the header for the user and password in the address or in `~/.netrc`; empty if neither has any."""
    parts = urlsplit(url)
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    else:
        try:
            known = netrc.netrc().authenticators(parts.hostname or "")
        except (OSError, netrc.NetrcParseError):
            known = None
        if known is None:
            return ""
        login = f"{known[0]}:{known[2]}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _tls(certificates: str) -> ssl.SSLContext:
    """Return a context that trusts this system, certifi (some Pythons know no system's), and the certificates given."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    path = Path(certificates).expanduser()
    if certificates and path.exists():
        context.load_verify_locations(**{"capath" if path.is_dir() else "cafile": str(path)})
    return context
