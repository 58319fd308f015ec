"""A client for HTTP servers of other programs, and a rule for retries.

A request without a usable answer raises `HttpError`. `ask_again` repeats a request while another try may help. The
total time of all tries is limited, and a cancellation of the task stops them at once.
"""

import asyncio
import json
import math
import random
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from slimrl.errors import UserError, visible
from slimrl.io.loop_thread import PROCESS_LOOP
from slimrl.io.secrets import check_address, redact_key
from slimrl.io.urls import is_this_machine

BUSY = frozenset({429, 503, 529})  # the status codes of an overloaded server
PASSING = frozenset({408, 500, 502, 504})  # the status codes of other temporary failures
MAX_BACKOFF_S = 8.0
MAX_PAUSE_S = 60.0  # limit of the pause before another try, even if a server asks for a longer pause
CONNECT_S = 10.0
MAX_REPLY_BYTES = 64 << 20
SHOWN_CHARS, MAX_SAID_CHARS = 300, 1000  # limits of the quoted reply and of the whole text in an error

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Peer:
    """The address of a server, and the parameters of its client. `who` is the noun for the server in messages, and
    `advice` is the remedy at the end of messages.

    Requests to this machine use no proxy. Requests to other machines use the proxy from the environment variables,
    unless `uses_proxy` is false.
    """

    who: str
    base_url: str
    key: str = ""
    advice: str = ""
    uses_proxy: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpError(UserError):
    """An error for a request without a usable answer. `said` describes the failure without the server's name and
    without the advice.

    `kind` is `unreachable`, `busy`, `timeout`, `error`, or a caller's word for an unusable reply. `status` is 0 if
    there was no reply. `wait_s` is the pause that the server asks for, in seconds.
    """

    def __init__(
        self, peer: Peer, url: str, said: str, kind: str = "error", status: int = 0, wait_s: float = 0.0
    ) -> None:
        said = visible(said, MAX_SAID_CHARS)
        super().__init__(f"the {peer.who} at {url} {said}. {peer.advice}".rstrip())
        self.peer, self.url, self.said, self.kind = peer, url, said, kind
        self.status, self.wait_s, self.raised_s = status, wait_s, time.monotonic()

    def with_note(self, note: str) -> "HttpError":
        """Return a copy of the error with a note after its description."""
        return HttpError(self.peer, self.url, f"{self.said} ({note})", self.kind, self.status, self.wait_s)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for repeating a request.

    `within_s` limits the total time of all tries and pauses. `knob` is the name of this limit in messages. A request to
    a busy server is repeated until `within_s`. After other temporary failures, a request is repeated until `patience_s`
    after the first failure. At most `max_tries` tries may fail with a status code, not counting those of a busy server.
    `passing` has the status codes of temporary failures.
    """

    within_s: float = math.inf
    knob: str = "timeout_s"
    patience_s: float = math.inf
    max_tries: int = sys.maxsize
    passing: frozenset[int] = PASSING

    def allow(self, failures: Sequence[HttpError], pause_s: float) -> bool:
        """Return True if a request with these failures may be repeated after a pause of `pause_s`."""
        last = failures[-1]
        if last.kind == "busy":
            return True
        against = [one for one in failures if one.kind != "busy"]
        is_patient = last.raised_s + pause_s - against[0].raised_s <= self.patience_s
        if last.kind == "unreachable":
            return is_patient
        return is_patient and last.status in self.passing and sum(one.status > 0 for one in against) < self.max_tries


async def ask_again(peer: Peer, ask: Callable[[Sequence[HttpError]], Awaitable[T]], limits: Limits) -> T:
    """Call `ask` until a call succeeds, each time with the failures so far. Return the result. Raise the last HttpError
    if it is permanent, or if another try would exceed the limits."""
    failures: list[HttpError] = []
    try:
        async with asyncio.timeout(limits.within_s if limits.within_s < math.inf else None) as limit:
            while True:
                try:
                    return await ask(failures)
                except HttpError as error:
                    failures.append(error)
                    pause_s = _pause_s(error, len(failures))
                    if not limits.allow(failures, pause_s):
                        if len(failures) == 1:
                            raise
                        raise error.with_note(f"{len(failures)} tries") from error
                    if asyncio.get_running_loop().time() + pause_s > (limit.when() or math.inf):
                        raise error.with_note(f"`{limits.knob}` = {limits.within_s:g} leaves no other try") from error
                await asyncio.sleep(pause_s)
    except TimeoutError as error:
        within = f"no answer within `{limits.knob}` = {limits.within_s:g} s"
        if failures:
            raise failures[-1].with_note(within) from error
        raise HttpError(peer, peer.base_url, f"gave {within}", "timeout") from error


class HttpClient:
    """A client with connections to one server, for one event loop. At most `num_concurrent` requests are open at once;
    other requests wait.

    At most `max_bytes` of a reply are read. Replies are not decompressed, because a short compressed reply could become
    very long. The API key is removed from replies. Raise UserError if the address has a key in it, or if the proxy in
    the environment variables is invalid.
    """

    def __init__(self, peer: Peer, num_concurrent: int, max_bytes: int = MAX_REPLY_BYTES) -> None:
        check_address(peer.base_url, peer.who)
        self._peer, self._max_bytes = peer, max_bytes
        # Do not use httpx's limit: a request that is cancelled while it waits there may keep its place for ever
        # (https://github.com/encode/httpcore/issues/1093).
        self._places = asyncio.Semaphore(num_concurrent)
        self._client = _connections(peer)

    async def send(self, method: str, url: str, body: Any = None) -> Any:
        """Send a request once, and return the JSON of the reply; None if it is empty. Raise HttpError on failure."""
        data = await self._fetch(method, url, body)
        try:
            return json.loads(data) if data else None
        except (ValueError, RecursionError) as error:  # RecursionError for JSON that is nested too deeply
            said = f"answers {data[:SHOWN_CHARS].decode('utf-8', 'replace')!r}, which is no JSON"
            raise HttpError(self._peer, url, said, status=200) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _fetch(self, method: str, url: str, body: Any) -> bytes:
        """Return the body of a successful reply."""
        # Escape to ASCII, because UTF-8 cannot encode a lone surrogate.
        content = None if body is None else json.dumps(body, allow_nan=False).encode("ascii")
        kind = {} if content is None else {"Content-Type": "application/json"}
        try:
            async with self._places, self._client.stream(method, url, content=content, headers=kind) as response:
                data, fault = await self._read(response)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            said = f"does not answer: {type(error).__name__}: {error}"
            raise HttpError(self._peer, url, said, "unreachable") from error
        data = redact_key(data, self._peer.key)
        if response.is_success and not fault:
            return data
        status, place = response.status_code, response.headers.get("Location", "")
        to = f", and points to {place!r:.200}, which is not followed" if place else ""
        said = fault or f"with status {status}: {data[:SHOWN_CHARS].decode('utf-8', 'replace')}{to}"
        failure = "busy" if status in BUSY else "error"
        raise HttpError(self._peer, url, f"answers {said}", failure, status, _retry_after_s(response.headers))

    async def _read(self, response: httpx.Response) -> tuple[bytes, str]:
        """Return the body of a reply, and a description of the reply's fault, or an empty text. The body is streamed,
        so a server that never stops writing cannot fill the memory."""
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            return b"", f"with a body that is compressed ({encoding!r:.60}), which was not asked for"
        data = bytearray()
        async for part in response.aiter_raw():
            data += part
            if len(data) > self._max_bytes:
                return b"", f"with more than {self._max_bytes:,} bytes"
        return bytes(data), ""


def ask_once(peer: Peer, url: str, timeout_s: float, method: str = "GET") -> Any:
    """Return the JSON at a URL, at most 1 MiB. This is for synchronous callers. Raise HttpError if the request fails or
    takes longer than `timeout_s`."""

    async def ask() -> Any:
        async with aclosing(HttpClient(peer, 1, max_bytes=1 << 20)) as client:
            limits = Limits(timeout_s, patience_s=0.0)
            return await ask_again(peer, lambda _: client.send(method, url), limits)

    return PROCESS_LOOP.wait(ask())


def is_healthy(base_url: str, timeout_s: float) -> bool:
    """Return True if the server's route `/health` returns success within `timeout_s` seconds."""
    try:
        ask_once(Peer("server", base_url), f"{base_url}/health", timeout_s)
    except HttpError as error:
        return error.status == 200  # success, but the page is not JSON
    return True


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds that a busy server asks to wait; 0 if the header is missing or has a date instead."""
    try:
        seconds = float(headers.get("Retry-After", "0"))
    except ValueError:
        return 0.0
    return seconds if 0.0 <= seconds < float("inf") else 0.0


def _pause_s(error: HttpError, tries: int) -> float:
    """Return the pause before another try; 0 after an unusable reply, because waiting would not change it."""
    if error.status == 200:
        return 0.0
    # The random factor keeps many clients from retrying at the same time.
    return min(error.wait_s, MAX_PAUSE_S) or min(MAX_BACKOFF_S, 2.0 ** min(tries, 10) / 4) * random.uniform(0.5, 1.0)


def _connections(peer: Peer) -> httpx.AsyncClient:
    """Create the HTTP client for a server, with its key and with the proxy from the environment variables."""
    uses_proxy = peer.uses_proxy and not is_this_machine(urlsplit(peer.base_url).hostname or "")
    needs_certificates = uses_proxy or urlsplit(peer.base_url).scheme == "https"  # which take long to load
    headers = {"Accept-Encoding": "identity", "User-Agent": "slimrl", **peer.headers}
    try:
        return httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            headers=headers | ({"Authorization": f"Bearer {peer.key}"} if peer.key else {}),
            limits=httpx.Limits(max_connections=None),
            verify=httpx.create_ssl_context() if needs_certificates else False,  # by SSL_CERT_FILE and SSL_CERT_DIR
            trust_env=uses_proxy,
        )
    except (httpx.InvalidURL, ValueError, ImportError, OSError) as error:
        raise UserError(
            f"the {peer.who} at {peer.base_url} cannot be asked with the variables of the environment: {error}. "
            "Mend what is set of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR; a "
            f"{peer.who} on this machine is asked without a proxy."
        ) from error
