"""Asks a server for its pages: its health, its schema, and what it says of itself."""

import json
import time
from typing import Any
from urllib.parse import urlsplit

from slimrl.errors import UserError, require, visible
from slimrl.io.urls import is_this_machine

MAX_PAGE = 1 << 20
PAGE_S = 20.0


def schema_of(base: str) -> dict[str, Any]:
    """The JSON schema of the server's actions. Raises UserError if it gives none."""
    page = _page(f"{base}/schema")
    action = page.get("action") if isinstance(page, dict) else None
    if not isinstance(action, dict) or not isinstance(action.get("properties"), dict):
        raise UserError(f"openenv: {base}/schema has no schema of an action with `properties`, but {_preview(page)}.")
    return action


def description_of(base: str) -> str:
    """What the server says that its environment is; empty if it says nothing."""
    try:
        page = _page(f"{base}/metadata")
    except UserError:
        return ""
    text = page.get("description") if isinstance(page, dict) else None
    return visible(text, 4000) if isinstance(text, str) else ""


def is_healthy(base: str) -> bool:
    """Whether the server answers that it is healthy."""
    try:
        _page(f"{base}/health")
    except UserError:
        return False
    return True


def _page(url: str) -> Any:
    """The JSON of a page. Raises UserError for anything else: an error, a redirect, too much or too late."""
    httpx = require("httpx", "openenv", "an OpenEnv server")
    deadline = time.monotonic() + PAGE_S
    is_near = is_this_machine(urlsplit(url).hostname or "")
    try:
        with (
            httpx.Client(trust_env=not is_near, timeout=PAGE_S, follow_redirects=False) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            if response.status_code != 200:
                place = response.headers.get("Location", "")
                to = f" and points to {place!r:.200}, which is not followed" if place else ""
                raise UserError(f"openenv: {url} answers with status {response.status_code}{to}.")
            body = b""
            for part in response.iter_raw():
                body += part
                if len(body) > MAX_PAGE or time.monotonic() > deadline:
                    raise UserError(f"openenv: {url} gives more than {MAX_PAGE} bytes, or takes over {PAGE_S:g} s.")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise UserError(f"openenv: no server answers at {url}: {error!r:.200}. Start it, or mend the URL.") from error
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise UserError(f"openenv: {url} gives no JSON, but {_preview(body)}.") from None


def _preview(value: object) -> str:
    return visible(f"{value!r:.100}")
