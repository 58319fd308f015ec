"""Decides which requests a server answers, by a key or by the address. Independent of a framework.

Without a key a server answers the programs of its own machine but no web page. A browser there reaches the loopback
address on behalf of any page. Such a request has the page's address in `Origin`, or, if the page's own name resolves to
this machine (DNS rebinding), that name in `Host`.
"""

import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from slimrl.io.urls import is_loopback


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason for refusing a request, in words and as a code."""

    status: int
    message: str
    code: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Access:
    """The permitted clients: with a key, set by the environment variable `variable`, all who send it; without one, the
    programs of this machine, including the addresses in `forwarders`."""

    key: str
    variable: str
    forwarders: Collection[str] = ()

    def refusal(self, sender: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request from the address `sender` is refused; None if it is answered. The names of headers are
        in lower case."""
        if not self.key:
            return self._page_refusal(sender, headers)
        # In constant time, so that the time of an answer reveals nothing about the key.
        if hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self.key}".encode()):
            return None
        why = (
            f"The header `Authorization: Bearer KEY` is needed, with the key that {self.variable} sets where the "
            "server runs; there is none, or a wrong one."
        )
        return Refusal(401, why, "invalid_api_key", {"WWW-Authenticate": "Bearer"})

    def _page_refusal(self, sender: str, headers: Mapping[str, str]) -> Refusal | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        # Only headers of a browser reveal a page: programs send no `Origin`, and the server's address as `Host`.
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
    """Return the name in a header `Host`, without the port; empty if it is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
