"""Keeps responses for `previous_response_id` and `GET /v1/responses/{id}`, in memory and within bounds."""

import json
from collections import OrderedDict
from typing import Any

Plain = dict[str, Any]

MAX_RESPONSES = 1024
MAX_BYTES = 64 * 2**20


class ResponseStore:
    """The last responses, each with its conversation, as JSON. Its size counts; the oldest are removed first."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses, self._max_bytes = max_responses, max_bytes
        self._kept: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()
        self._num_bytes = 0

    def add(self, response: Plain, messages: list[Plain]) -> None:
        """Keep a response and its whole conversation as chat messages."""
        both = _encode(response), _encode(messages)
        self._kept[response["id"]] = both
        self._num_bytes += sum(map(len, both))
        while len(self._kept) > self._max_responses or self._num_bytes > self._max_bytes:
            self.remove(next(iter(self._kept)))

    def response(self, id: str) -> Plain | None:
        """Return the response of this id, or None if it is not kept."""
        return json.loads(self._kept[id][0]) if id in self._kept else None

    def messages(self, id: str) -> list[Plain] | None:
        """Return the conversation up to the response of this id, or None if it is not kept."""
        return json.loads(self._kept[id][1]) if id in self._kept else None

    def remove(self, id: str) -> bool:
        """Remove a response; return True if it was kept."""
        both = self._kept.pop(id, (b"", b""))
        self._num_bytes -= sum(map(len, both))
        return bool(both[0])


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
