"""Checks host names, URLs and names of environment variables. Only the text is checked: host names are not resolved, so
an unknown host name counts as another machine."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return True if a server that listens on the host can be reached only from this machine.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_this_machine(host: str) -> bool:
    """Return True if a request to the host stays on this machine, so that it must not use a proxy.

    >>> is_this_machine("LOCALHOST."), is_this_machine("0.0.0.0"), is_this_machine("10.0.0.1")
    (True, True, False)
    """
    name = host.rstrip(".").lower()
    try:
        return is_loopback(name) or name.endswith(".localhost") or ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False


def is_http_url(url: str) -> bool:
    """Return True if the text is an HTTP or HTTPS URL with a host.

    >>> is_http_url("http://localhost:8000/v1"), is_http_url("localhost:8000"), is_http_url("http://localhost:many")
    (True, False, False)
    """
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number, or is too large
        return False


def fault_of_base_url(url: str) -> str:
    """Describe a part that a server's address must not have: a query, a user or a password. Return an empty text if
    there is none. A query is refused because a path will be appended to the address. A password is refused because
    files and messages show the address. In text that is not a valid URL, any `@` counts as a user or a password.

    >>> fault_of_base_url("http://localhost/v1"), fault_of_base_url("http://localhost/v1?key=abc")
    ('', 'a query in it (`...?...`)')
    >>> fault_of_base_url("me:secret@localhost"), fault_of_base_url("http://a/@b")
    ('a user or a password in it (`...@...`)', '')
    """
    if "@" in url and not (is_http_url(url) and "@" not in urlsplit(url).netloc):
        return "a user or a password in it (`...@...`)"
    return "a query in it (`...?...`)" if "?" in url or "#" in url else ""


def is_variable_name(name: str) -> bool:
    """Return True if `name` is a valid name of an environment variable. Users sometimes write the API key itself
    instead of this name.

    >>> is_variable_name("OPENAI_API_KEY"), is_variable_name("sk-abc")
    (True, False)
    """
    return name.isascii() and name.isidentifier()
