"""Lets browsers log in. A browser opens an address with the key or with a one-time ticket, and receives a cookie."""

import hashlib
import hmac
import html
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote

COOKIE = "slimrl_view"
PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>slimrl: log in</title>
<body style="font: 1.05rem/1.5 system-ui, sans-serif; max-width: 38rem; margin: 4rem auto; padding: 0 1rem">
<h1 style="font-size: 1.3rem">{title}</h1>
<p>Open this page as <code>/?key=KEY</code>, with the value of the variable <code>{variable}</code> on the machine where
<code>slimrl view</code> runs in the place of <code>KEY</code>. This browser is then remembered.</p>
</html>
"""


class Login:
    """Checks whether browsers have logged in with `key`. If `key` is empty, no login is possible."""

    def __init__(self, key: str, variable: str) -> None:
        self.key = key
        self._variable = variable
        self._tickets: set[str] = set()

    def address(self, url: str) -> str:
        """Return an address that contains the key. Any browser can log in with this address."""
        return f"{url}?key={quote(self.key, safe='')}"

    def address_for_once(self, url: str) -> str:
        """Return an address that logs in once. It has a ticket, not the key, because other programs can see a browser's
        command line."""
        ticket = secrets.token_urlsafe()
        self._tickets.add(ticket)
        return f"{url}?key={ticket}"

    def cookie(self, query: str) -> str:
        """Return the cookie if the query of the address has the key or a valid ticket; otherwise an empty text."""
        given = dict(parse_qsl(query)).get("key", "") if self.key else ""
        if given in self._tickets:
            self._tickets.remove(given)
        elif not given or not hmac.compare_digest(given.encode(), self.key.encode()):
            return ""
        return f"{COOKIE}={_proof(self.key)}; HttpOnly; SameSite=Strict; Path=/"

    def is_known(self, cookies: str) -> bool:
        """Return True if a browser that sends these cookies has logged in."""
        found = dict(one.strip().partition("=")[::2] for one in cookies.split(";"))
        return bool(self.key) and hmac.compare_digest(found.get(COOKIE, "").encode(), _proof(self.key).encode())

    def page(self, query: str) -> bytes:
        """Return the page for a browser that has not logged in. The page explains how to log in."""
        title = "This is not the key" if "key" in dict(parse_qsl(query)) else "A key is needed to see these runs"
        return PAGE.format(title=title, variable=html.escape(self._variable)).encode()


def wants_page(headers: Mapping[str, str]) -> bool:
    """Return True if the client accepts HTML, like the address bar of a browser."""
    return "text/html" in headers.get("accept", "")


def _proof(key: str) -> str:
    """Return the value of the cookie. It proves that its holder knew the key, and does not reveal the key."""
    return hmac.new(key.encode(), b"slimrl view", hashlib.sha256).hexdigest()
