"""Decides which requests a server answers. The decision depends on a key or on the client's address.

Without a key, a server answers only programs on its machine. Requests of web pages are refused, too: a web page can
make a browser on this machine send requests to the loopback address. Such a request has the page's address in the
header `Origin`. If the page's host name resolves to this machine (DNS rebinding), the name is in `Host`.
"""

import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from slimrl.io.urls import is_loopback


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason for refusing a request, as text and as a code."""

    status: int
    message: str
    code: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Access:
    """The rule for permitted clients. With a `key`, all clients that send this key are permitted. `variable` is the
    name of the environment variable that sets the key. Without a key, programs on this machine and clients with an
    address in `forwarders` are permitted."""

    key: str
    variable: str
    forwarders: Collection[str] = ()

    def refusal(self, sender: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return the reason for refusing a request from the address `sender`; None if the request is permitted. The
        names in `headers` are in lower case."""
        if not self.key:
            return self._page_refusal(sender, headers)
        # Compare in constant time, so that the time of an answer reveals nothing about the key.
        if hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self.key}".encode()):
            return None
        why = (
            f"The header `Authorization: Bearer KEY` is needed, with the key that {self.variable} sets where the "
            "server runs; there is none, or a wrong one."
        )
        return Refusal(401, why, "invalid_api_key", {"WWW-Authenticate": "Bearer"})

    def _page_refusal(self, sender: str, headers: Mapping[str, str]) -> Refusal | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        # Headers reveal a web page: other programs send no `Origin`, and send the server's address as `Host`.
        if not is_loopback(_name(host)):
            found = f"has the header `Host: {host}`, which is not this server's address"
        elif origin not in (None, f"http://{host}"):
            found = f"has the header `Origin: {origin}`, which a web page of others sends"
        elif not is_loopback(sender) and sender not in self.forwarders:
            found = f"comes from {sender}"
        else:
            return None
        why = (
            f"The request {found}. Without a key only programs on the server's machine are answered: leave the headers "
            f"as they are by default, or start the server with the variable {self.variable}."
        )
        return Refusal(403, why, "foreign_request")


def _name(host: str) -> str:
    """Return the host name in a `Host` header, without the port; empty if the header is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
