"""Lists the models that a server with OpenAI's HTTP protocol has. Needs the standard library alone."""

import http.client
import json
import queue
import threading
import urllib.request
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from slimrl.io.urls import is_this_machine

MAX_BYTES = 1 << 20


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: another server must not get the key."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def list_models(base_url: str, key: str, timeout_s: float) -> list[dict[str, Any]]:
    """What `/models` says of each model. Raises as `get_json`."""
    told = get_json(f"{base_url.rstrip('/')}/models", key, timeout_s)
    models = told.get("data", []) if isinstance(told, dict) else []
    return [one for one in models if isinstance(one, dict)] if isinstance(models, list) else []


def get_json(url: str, key: str, timeout_s: float) -> Any:
    """The JSON of at most 1 MiB behind a URL, which no proxy sees if it is on this machine.

    Raises OSError, of which urllib's errors are kinds, if there is no answer within the time, and ValueError if the
    answer is neither HTTP nor JSON.
    """
    answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((_get_json(url, key, timeout_s), None))
        except Exception as error:
            answers.put((None, error))

    # On a thread, which may stay behind: the timeout of a socket starts anew with each byte.
    threading.Thread(target=ask, name="models", daemon=True).start()
    try:
        told, error = answers.get(timeout=timeout_s)
    except queue.Empty:
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None
    if error is not None:
        raise error
    return told


def _get_json(url: str, key: str, timeout_s: float) -> Any:
    headers = {"User-Agent": "slimrl"} | ({"Authorization": f"Bearer {key}"} if key else {})
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if is_this_machine(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as response:
            return json.loads(response.read(MAX_BYTES))
    except HTTPError as error:
        error.close()
        raise
    except http.client.HTTPException as error:
        raise ValueError(f"this is no answer of an HTTP server ({type(error).__name__})") from error
    except RecursionError as error:
        raise ValueError("its JSON is nested too deep") from error
