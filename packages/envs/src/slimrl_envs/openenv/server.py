"""The pages of an environment server: the schema of its actions, and its description of the environment."""

from typing import Any

from slimrl.errors import UserError, visible
from slimrl.io.http import HttpError, Peer, ask_once
from slimrl.io.urls import fault_of_base_url, is_http_url

PAGE_S = 20.0


def base_url(url: str) -> str:
    """Return the address of a server's pages. Raise UserError for a URL with secrets, or without a host."""
    if fault := fault_of_base_url(url):
        raise UserError(f"openenv: the address has {fault}, which files and messages would repeat. Remove it.")
    if not is_http_url(url):
        raise UserError(
            f"openenv: `{url:.200}` is no URL with a host and a port. Start the server, as by `uvicorn "
            "parrot.server.app:app --port 8000` or `docker run --publish 127.0.0.1:8000:8000 IMAGE`, and write "
            "`openenv:http://127.0.0.1:8000`."
        )
    return url.rstrip("/")


def schema_of(base: str) -> dict[str, Any]:
    """Return the JSON schema of the actions of the server at `base`. Raise UserError if the server has none."""
    page = _page(base, "schema")
    action = page.get("action") if isinstance(page, dict) else None
    if not isinstance(action, dict) or not isinstance(action.get("properties"), dict):
        found = visible(f"{page!r:.100}")
        raise UserError(f"openenv: {base}/schema has no schema of an action with `properties`, but {found}.")
    return action


def description_of(base: str) -> str:
    """Return the environment's description from the server at `base`. Return an empty text if the server has none."""
    try:
        page = _page(base, "metadata")
    except HttpError:
        return ""
    text = page.get("description") if isinstance(page, dict) else None
    return visible(text, 4000) if isinstance(text, str) else ""


def _page(base: str, name: str) -> Any:
    """Return the JSON of the server's page `name`. Raise HttpError for an error, a redirect, a reply that is too large,
    and a reply that takes longer than `PAGE_S` seconds."""
    return ask_once(Peer("OpenEnv server", base, advice="Start it, or mend the URL."), f"{base}/{name}", PAGE_S)
