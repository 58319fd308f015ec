"""Reads where an OpenEnv environment is: at a URL, in a Python module, or in a container image."""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from slimrl.errors import UserError
from slimrl.io.urls import fault_of_base_url, is_http_url

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
IMAGE = re.compile(r"[a-z0-9][\w./:@-]*")
SCHEMES = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
FORMS = (
    "`openenv:http://HOST:PORT` or `openenv:ws://HOST:PORT` for a server that runs, `openenv:package.module:factory` "
    "for an environment class, a function that makes one or an app, `openenv:docker/IMAGE` for a container"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where an environment is. `text` is a URL of HTTP without a slash at its end, `module:name`, or an image."""

    kind: Literal["url", "module", "image"]
    text: str


def read_address(name: str) -> Address:
    """The address that a name means. Raises UserError if it means none.

    >>> read_address("ws://127.0.0.1:8000/ws").text, read_address("docker/echo-env:latest").text
    ('http://127.0.0.1:8000', 'echo-env:latest')
    """
    scheme, separator, _ = name.partition("://")
    if separator and scheme.lower() in SCHEMES:
        return Address("url", _base_url(name))
    kind, _, image = name.partition("/")
    if kind == "docker" and IMAGE.fullmatch(image):
        return Address("image", image)
    if MODULE.fullmatch(name):
        return Address("module", name)
    raise UserError(f"openenv: `{name:.200}` names no environment. Write {FORMS}.")


def _base_url(url: str) -> str:
    if fault := fault_of_base_url(url.replace("ws", "http", 1) if url.startswith("ws") else url):
        raise UserError(f"openenv: the address has {fault}, which files and messages would repeat. Remove it.")
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix("/ws").rstrip("/")
    base = urlunsplit((SCHEMES[parts.scheme.lower()], parts.netloc, path, "", ""))
    if not is_http_url(base):
        raise UserError(f"openenv: `{url:.200}` is no URL with a host and a port.")
    return base


def session_url(base: str) -> str:
    """The address of the sessions of a server.

    >>> session_url("https://localhost/echo")
    'wss://localhost/echo/ws'
    """
    return f"ws{base.removeprefix('http')}/ws"
