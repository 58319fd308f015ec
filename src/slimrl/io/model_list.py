"""Lists the models that a server with OpenAI's HTTP protocol has. Needs the standard library alone."""

import json
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from slimrl.io.urls import is_this_machine

MAX_BYTES = 1 << 20


def list_models(base_url: str, key: str, timeout_s: float) -> list[dict[str, Any]]:
    """What `/models` says of each model. Raises OSError, of which urllib's errors are kinds, or ValueError."""
    told = get_json(f"{base_url.rstrip('/')}/models", key, timeout_s)
    models = told.get("data", []) if isinstance(told, dict) else []
    return [one for one in models if isinstance(one, dict)] if isinstance(models, list) else []


def get_json(url: str, key: str, timeout_s: float) -> Any:
    """The JSON of at most 1 MiB behind a URL, which no proxy sees if it is on this machine. Raises as `list_models`."""
    headers = {"User-Agent": "slimrl"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, headers=headers)
    no_proxy = [urllib.request.ProxyHandler({})] if is_this_machine(urlsplit(url).hostname or "") else []
    with urllib.request.build_opener(*no_proxy).open(request, timeout=timeout_s) as response:
        return json.loads(response.read(MAX_BYTES))
