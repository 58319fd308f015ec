"""Runs the calls of a client, and prints what came of each as a line of JSON: answered, refused or failed."""

import json
import sys
from collections.abc import Callable, Mapping

ADDRESS, MODEL = (*sys.argv[1:3], "", "")[:2]
QUESTION = "What is 20 + 22?"
MESSAGES = [{"role": "user", "content": QUESTION}]
PARAMETERS = {
    "properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer"}},
    "required": ["a", "b"],
    "title": "add_args",
    "type": "object",
    "additionalProperties": False,
}
FUNCTION = {"name": "add", "description": "Add two numbers.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}


def report(calls: Mapping[str, Callable[[], object]]) -> None:
    """Make every call. One is refused where the server says why it cannot answer (an error of 400 to 499)."""
    for name, call in calls.items():
        try:
            kind, detail = "answered", str(call())
        except Exception as error:  # of a client, of which nothing is known
            refused = next((cause for cause in reversed(_causes(error)) if 400 <= _status(cause) < 500), None)
            kind, detail = ("refused", str(refused)) if refused else ("failed", f"{type(error).__name__}: {error}")
        print(json.dumps({"call": name, "outcome": kind, "detail": " ".join(detail.split())[:300]}), flush=True)


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _status(error: BaseException) -> int:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else 0
