"""Requests the pages of a server: the schema of its actions, and its description."""

from typing import Any

from slimrl.errors import UserError, visible
from slimrl.io.http import HttpError, Peer, ask_once

PAGE_S = 20.0


def schema_of(base: str) -> dict[str, Any]:
    """The JSON schema of the server's actions. Raises UserError if it has none."""
    page = _page(base, "schema")
    action = page.get("action") if isinstance(page, dict) else None
    if not isinstance(action, dict) or not isinstance(action.get("properties"), dict):
        found = visible(f"{page!r:.100}")
        raise UserError(f"openenv: {base}/schema has no schema of an action with `properties`, but {found}.")
    return action


def description_of(base: str) -> str:
    """The server's description of its environment; empty if it has none."""
    try:
        page = _page(base, "metadata")
    except HttpError:
        return ""
    text = page.get("description") if isinstance(page, dict) else None
    return visible(text, 4000) if isinstance(text, str) else ""


def _page(base: str, name: str) -> Any:
    """The JSON of a page. Raises HttpError for anything else: an error, a redirect, too much or too late."""
    return ask_once(Peer("OpenEnv server", base, advice="Start it, or mend the URL."), f"{base}/{name}", PAGE_S)
