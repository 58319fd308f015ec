"""The module has the host's side of the socket to a process in the sandbox. It trusts no message from there.

A message that breaks the protocol raises `BrokenChannel`. The execution stops with its text as the error.
"""

import asyncio
import json
import marshal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from slimrl_sandbox.base import CALL_CHARS, Call, Tools

MAX_MESSAGE_BYTES = 2**20
MAX_CALLS = 1024  # running tool calls in this process, including those whose caller has left
_places = threading.BoundedSemaphore(MAX_CALLS)


class BrokenChannel(Exception):
    """The process in the sandbox broke the protocol; the message describes the violation."""


class Channel:
    """A channel that answers and records the code's tool calls until the code is done. `sock` is the host's end."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.calls: list[Call] = []

    async def scratch(self) -> int:
        """Wait until the process is ready and return a descriptor of its working directory.

        Raises EOFError if the process exits first. This is the only message from before the code runs, and the only
        message from which descriptors are accepted: later messages may be written by the code itself.
        """
        self._socket.setblocking(False)
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._socket, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._socket)
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if not descriptors:
            raise EOFError
        return descriptors[0]

    async def serve(self, start: dict[str, Any], tools: Tools, num_calls: int) -> str:
        """Send the code, answer its tool calls, and return the error that stopped it; empty if it had no error.

        Raises:
            EOFError: if the other end was closed first.
            BrokenChannel: if a message breaks the protocol, or there are more than `num_calls` calls.
        """
        reader, writer = await asyncio.open_unix_connection(sock=self._socket)
        try:
            await _send(writer, start)
            while (message := await _receive(reader)).get("done") is not True:
                if len(self.calls) == num_calls:
                    raise BrokenChannel(f"the code called tools more than num_calls = {num_calls} times")
                await _send(writer, await self._answer(message, tools))
            return writable(text_of(message, "error"))
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            raise EOFError from error
        finally:
            writer.transport.abort()  # `close` would wait until the other end has read the rest, which it may never do

    def close(self) -> None:
        """Close the host's end of the socket."""
        self._socket.close()

    async def _answer(self, message: dict[str, Any], tools: Tools) -> dict[str, Any]:
        name, argument = text_of(message, "tool"), writable(text_of(message, "argument"))
        if name not in tools:
            raise BrokenChannel(f"the code asked for a tool that there is not: {writable(name)!r:.80}")
        answer = await call(tools, name, argument)
        self.calls.append(Call(name, argument[:CALL_CHARS], answer.get("error", "")[:CALL_CHARS]))
        return answer


async def call(tools: Tools, name: str, argument: str) -> dict[str, Any]:
    """Call a tool and return `{"result": ...}`, or `{"error": text}` if it failed. Raises no exception.

    Each call has its own thread, which is never joined: tools that never return would fill a pool of threads and keep
    the process from exiting.
    """
    if not _places.acquire(blocking=False):
        return {"error": f"{MAX_CALLS} calls of tools are running, and {name} was not called"}
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[dict[str, Any]] = loop.create_future()

    def tell(found: dict[str, Any]) -> None:
        if not answer.done():  # the caller may have given up
            answer.set_result(found)

    def work() -> None:
        found = _answer_of(tools[name], name, argument)
        _places.release()
        with suppress(RuntimeError):  # the loop may be closed
            loop.call_soon_threadsafe(tell, found)

    try:
        threading.Thread(target=work, name=f"slimrl-tool-{name}", daemon=True).start()
    except RuntimeError as error:  # the system allows no more threads
        _places.release()
        return {"error": f"{name} was not called: {error}"}
    return await answer


def _answer_of(tool: Callable[[str], Any], name: str, argument: str) -> dict[str, Any]:
    try:
        spelled = json.dumps(tool(argument))
        if len(spelled) > MAX_MESSAGE_BYTES:
            return {"error": f"the result of {name} is larger than {MAX_MESSAGE_BYTES // 2**20} MiB"}
        # Read back, so that only plain types are left: `marshal`, which sends them, refuses subclasses of dict and str.
        return {"result": json.loads(spelled)}
    except BaseException as error:  # a tool may raise SystemExit, which has no special effect in this thread
        try:
            text = str(error)
        except BaseException:
            text = ""
        return {"error": writable(text or type(error).__name__)[:MAX_MESSAGE_BYTES]}


def text_of(message: dict[str, Any], key: str) -> str:
    """Return the text under a message's key. Raises BrokenChannel if the key has no text."""
    text = message.get(key)
    if not isinstance(text, str):
        raise BrokenChannel(f"a message on the channel of tools has no text `{key}`")
    return text


def writable(text: str) -> str:
    """Return the text with a question mark for each lone surrogate, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


async def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    content = marshal.dumps(message)
    writer.write(len(content).to_bytes(4, "big") + content)
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any]:
    # The length is checked before anything is read, or a message could claim 4 GiB of the host's memory.
    num_bytes = int.from_bytes(await reader.readexactly(4), "big")
    if num_bytes > MAX_MESSAGE_BYTES:
        raise BrokenChannel(f"a message on the channel of tools is larger than {MAX_MESSAGE_BYTES // 2**20} MiB")
    try:
        message = json.loads((await reader.readexactly(num_bytes)).decode())
    except (ValueError, RecursionError):  # RecursionError: lists nested a thousand deep
        raise BrokenChannel("a message on the channel of tools is not JSON") from None
    if not isinstance(message, dict):
        raise BrokenChannel("a message on the channel of tools is no object")
    return message
