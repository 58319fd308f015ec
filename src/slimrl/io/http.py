"""HTTP clients for servers that others run, such as a judge or a teacher: API keys, proxies, and temporary failures.
Knows nothing of what a server is asked."""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from slimrl.errors import UserError, install_hint
from slimrl.io.urls import fault_of_base_url, is_this_machine

BUSY = frozenset({429, 503, 529})  # the status codes of an overloaded server
PASSING = frozenset({408, 500, 502, 504})  # those of other temporary failures
MAX_BACKOFF_S = 8.0
MIN_KEY_CHARS = 8  # a shorter key is no secret, but a placeholder such as EMPTY


def read_api_key(variable: str, variables: Mapping[str, str] = os.environ) -> str:
    """The API key in an environment variable, empty if it is not set. Raises UserError for text that can be no key."""
    key = variables.get(variable, "").strip()  # files of secrets end with a newline
    if not (key.isascii() and key.isprintable()) or "\\" in key:
        raise UserError(f"the key in the variable {variable} has characters that no key has.")
    return key


def redact_key(data: bytes, key: str) -> bytes:
    r"""The text of a response with `[key]` in place of the API key, however JSON escapes it.

    Some servers repeat a key that they do not know, and their responses end up in logs. In JSON, and in JSON inside of
    JSON, any character of the key may be escaped.

    >>> redact_key(b"unknown key: sk-12345", "sk-12345"), redact_key(rb"unknown key: sk\u002D12345", "sk-12345")
    (b'unknown key: [key]', b'unknown key: [key]')
    """
    if len(key) < MIN_KEY_CHARS:
        return data
    if not _is_text(data):
        return b"[no UTF-8 text, which may contain the key]"
    return re.sub("".join(map(_char_pattern, key)).encode(), b"[key]", data)


def _is_text(data: bytes) -> bool:
    """Whether the bytes are UTF-8 text. In UTF-16 zeros would separate the characters of a key and hide it."""
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _char_pattern(char: str) -> str:
    """A pattern for all the ways in which JSON may write a character."""
    # JSON inside of JSON doubles the backslashes. The bound on their number keeps the search linear.
    plain = re.escape(char)
    return rf"(?:{plain}|\\{{1,8}}(?:{plain}|u(?i:{ord(char):04x})))"


def check_address(base_url: str, who: str) -> None:
    """Raises UserError for an address with a key in it, which every message and file that names the address would
    repeat. The error itself does not."""
    if fault := fault_of_base_url(base_url):
        raise UserError(
            f"{who}: `base_url` has {fault}. Remove it: a key goes into the variable of the environment that "
            "`api_key_variable` names."
        )


def backoff_s(tries: int, share: float) -> float:
    """How long to wait after a number of tries, in seconds. A random `share` from 0 to 1 scales half of it, so that
    many clients do not come back together.

    >>> backoff_s(1, 0.0), backoff_s(1, 1.0), backoff_s(20, 1.0)
    (0.25, 0.5, 8.0)
    """
    return min(MAX_BACKOFF_S, 2.0 ** min(tries, 10) / 4) * (1 + share) / 2


def retry_after_s(headers: Mapping[str, str]) -> float:
    """How long a busy server asks to wait, in seconds; 0 if it does not say, or gives a date, as the standard allows.

    >>> retry_after_s({"Retry-After": "2.5"}), retry_after_s({"Retry-After": "soon"}), retry_after_s({})
    (2.5, 0.0, 0.0)
    """
    try:
        seconds = float(headers.get("Retry-After", "0"))
    except ValueError:
        return 0.0
    return seconds if 0.0 <= seconds < float("inf") else 0.0


def import_httpx(who: str) -> Any:
    """The module httpx. Raises UserError that names the extra to install if it is missing."""
    try:
        import httpx  # an extra: only here
    except ImportError as error:
        raise UserError(f"{who} needs the extra [judge] ({error}): {install_hint('judge')}.") from error
    return httpx


def http_client(httpx: Any, who: str, base_url: str, key: str, num_concurrent: int) -> Any:
    """An `httpx.AsyncClient` with the API key and the proxies of the environment, for one event loop. Raises UserError
    if these cannot be used, or if the address has a key in it.

    It asks for no compression, and a compressed reply raises httpx.DecodingError before its body is read: a few bytes
    could unpack to any number.
    """
    check_address(base_url, who)

    async def refuse_compressed(response: Any) -> None:
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise httpx.DecodingError(f"it is compressed ({encoding!r:.60}), which was not asked for")

    try:
        return httpx.AsyncClient(
            timeout=None,
            headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {}),
            event_hooks={"response": [refuse_compressed]},
            limits=httpx.Limits(max_connections=num_concurrent),
            verify=httpx.create_ssl_context(),  # by SSL_CERT_FILE and SSL_CERT_DIR in either case
            trust_env=not is_this_machine(urlsplit(base_url).hostname or ""),  # whether to use proxies
        )
    except (httpx.InvalidURL, ValueError, ImportError, OSError) as error:
        raise UserError(
            f"the {who} at {base_url} cannot be asked with the variables of the environment: {error}. Mend what is set "
            f"of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR; a {who} on this machine "
            "is asked without a proxy."
        ) from error
