"""What names say by themselves: of hosts, addresses and variables. Resolves nothing: a host that only the network knows
is another machine."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server there.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_this_machine(host: str) -> bool:
    """Whether a request there stays on this machine, so that a proxy would be asked for itself.

    >>> is_this_machine("LOCALHOST."), is_this_machine("0.0.0.0"), is_this_machine("10.0.0.1")
    (True, True, False)
    """
    name = host.rstrip(".").lower()
    try:
        return is_loopback(name) or name.endswith(".localhost") or ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False


def is_http_url(url: str) -> bool:
    """Whether it is an address of HTTP.

    >>> is_http_url("http://localhost:8000/v1"), is_http_url("localhost:8000"), is_http_url("http://localhost:many")
    (True, False, False)
    """
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or too large for one
        return False


def has_password(url: str) -> bool:
    """Whether a user or a password stands in it. Where it is no address, any `@` may mean one.

    >>> has_password("http://me:secret@localhost/v1"), has_password("me:secret@localhost"), has_password("http://a/@b")
    (True, True, False)
    """
    return "@" in url and not (is_http_url(url) and "@" not in urlsplit(url).netloc)


def is_variable_name(name: str) -> bool:
    """Whether a variable of the environment can be called so; where a name of one is asked for, people put the secret.

    >>> is_variable_name("OPENAI_API_KEY"), is_variable_name("sk-abc")
    (True, False)
    """
    return name.isascii() and name.isidentifier()
