"""Answers the tool calls of a program. Messages from the program's process are not trusted.

A message that breaks the protocol raises `BrokenChannel`. Then the execution stops, and the text of this exception is
the execution's error.
"""

import asyncio
import inspect
import json
import marshal
import socket
from collections.abc import Awaitable
from typing import Any

from slimrl.tools.base import arguments_of
from slimrl_sandbox.base import CALL_CHARS, Call, Tools

MAX_MESSAGE_BYTES = 2**20


class BrokenChannel(Exception):
    """The process in the sandbox broke the protocol; the message describes the violation."""


class Channel:
    """The host's end of the socket to a process in the sandbox. It answers and records the program's tool calls."""

    def __init__(self, sock: socket.socket, tools: Tools) -> None:
        self._socket = sock
        self._tools = tools
        self.calls: list[Call] = []

    def serve(self, start: dict[str, Any], num_calls: int, max_file_bytes: int) -> tuple[str, bytes]:
        """Send the message `start` to the program, answer its calls, and return its error and its packed files. The
        error is empty if the program succeeded. The files are empty if `max_file_bytes` is 0.

        Raises:
            EOFError: if the other end was closed first.
            BrokenChannel: if a message breaks the protocol, or there are more than `num_calls` calls.
        """
        try:
            self._send(start | {"tools": list(self._tools)})
            while (message := self._receive()).get("done") is not True:
                if len(self.calls) == num_calls:
                    raise BrokenChannel(f"the code called tools more than num_calls = {num_calls} times")
                self._send(self._answer(message))
            return text_of(message, "error"), self._frame(max_file_bytes) if max_file_bytes else b""
        except OSError as error:
            raise EOFError from error

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        name = text_of(message, "tool")
        match message.get("arguments"):
            case [list() as positional, dict() as keywords]:
                pass
            case _:
                raise BrokenChannel("a message on the channel of tools has no `arguments`")
        if name not in self._tools:
            raise BrokenChannel(f"the code asked for a tool that there is not: {name!r:.80}")
        answer = answer_of(self._tools, name, positional, keywords)
        match [*positional, *keywords.values()]:
            case [str() as argument]:
                pass
            case _:
                argument = json.dumps([positional, keywords])
        self.calls.append(Call(name, writable(argument)[:CALL_CHARS], answer.get("error", "")[:CALL_CHARS]))
        return answer

    def _send(self, message: dict[str, Any]) -> None:
        content = marshal.dumps(message)
        self._socket.sendall(len(content).to_bytes(4, "big") + content)

    def _receive(self) -> dict[str, Any]:
        try:
            message = json.loads(self._frame(MAX_MESSAGE_BYTES).decode())
        except (ValueError, RecursionError):  # RecursionError: lists nested a thousand deep
            raise BrokenChannel("a message on the channel of tools is not JSON") from None
        if not isinstance(message, dict):
            raise BrokenChannel("a message on the channel of tools is no object")
        return message

    def _frame(self, max_bytes: int) -> bytes:
        # The length is checked first, because otherwise a message could take 4 GiB of the host's memory.
        num_bytes = int.from_bytes(self._exactly(4), "big")
        if num_bytes > max_bytes:
            raise BrokenChannel(f"a message on the channel of tools is larger than {max_bytes // 2**20} MiB")
        return self._exactly(num_bytes)

    def _exactly(self, num_bytes: int) -> bytes:
        content = bytearray()
        while len(content) < num_bytes:
            part = self._socket.recv(min(num_bytes - len(content), MAX_MESSAGE_BYTES))
            if not part:
                raise EOFError
            content += part
        return bytes(content)


def answer_of(tools: Tools, name: str, positional: list[Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Call a tool and return `{"result": ...}`, or `{"error": text}` if it failed."""
    try:
        result = tools[name](**arguments_of(tools, name, positional, keywords))
        spelled = json.dumps(asyncio.run(_wait(result)) if inspect.isawaitable(result) else result)
        if len(spelled) > MAX_MESSAGE_BYTES:
            return {"error": f"the result of {name} is larger than {MAX_MESSAGE_BYTES // 2**20} MiB"}
        # The JSON is read back to get plain types, because `marshal` cannot send subclasses of dict and str.
        return {"result": json.loads(spelled)}
    except Exception as error:
        return {"error": writable(str(error) or type(error).__name__)[:MAX_MESSAGE_BYTES]}


async def _wait(result: Awaitable[Any]) -> Any:
    return await result


def text_of(message: dict[str, Any], key: str) -> str:
    """Return the text under `key` in a message, made `writable`. Raises BrokenChannel if there is no text."""
    text = message.get(key)
    if not isinstance(text, str):
        raise BrokenChannel(f"a message on the channel of tools has no text `{key}`")
    return writable(text)


def writable(text: str) -> str:
    """Return the text with a question mark for each lone surrogate, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
