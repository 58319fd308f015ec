"""The host's end of the socket to a process in the sandbox, whose messages may be anything. Knows nothing of processes.

A message that breaks a rule raises `BrokenChannel`, which ends the execution with that as its error.
"""

import asyncio
import json
import marshal
import socket
from typing import Any

from slimrl.sandbox.base import CALL_CHARS, Call, Tools

MAX_MESSAGE_BYTES = 2**20


class BrokenChannel(Exception):
    """What the other side did wrong."""


class Channel:
    """Serves calls of tools until the code is done, and remembers them. `sock` is the host's end."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.calls: list[Call] = []

    async def scratch(self) -> int:
        """Wait until the process is ready; a descriptor of its working directory. EOFError if it ended before.

        This is the one message from before the code runs, and the only one of which descriptors are taken.
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
        """Send the code and answer its calls; returns the error that the code ended with. EOFError if it hung up."""
        reader, writer = await asyncio.open_unix_connection(sock=self._socket)
        try:
            await _send(writer, start)
            for _ in range(num_calls + 1):
                message = await _receive(reader)
                if message.get("done") is True:
                    return writable(text_of(message, "error"))
                await _send(writer, await self._answer(message, tools))
            raise BrokenChannel(f"the code called tools more than num_calls = {num_calls} times")
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            raise EOFError from error
        finally:
            writer.transport.abort()  # `close` would wait for a reader who is gone

    def close(self) -> None:
        self._socket.close()

    async def _answer(self, message: dict[str, Any], tools: Tools) -> dict[str, Any]:
        name, argument = text_of(message, "tool"), writable(text_of(message, "argument"))
        if name not in tools:
            raise BrokenChannel(f"the code asked for a tool that there is not: {writable(name)!r:.80}")
        answer = await call(tools, name, argument)
        self.calls.append(Call(name, argument[:CALL_CHARS], answer.get("error", "")[:CALL_CHARS]))
        return answer


async def call(tools: Tools, name: str, argument: str) -> dict[str, Any]:
    """`{"result": ...}`, or `{"error": text}` if the tool failed: which is data for the code, whatever it is."""
    try:
        spelled = json.dumps(await asyncio.to_thread(tools[name], argument))
    except Exception as error:
        return {"error": writable(str(error) or type(error).__name__)[:MAX_MESSAGE_BYTES]}
    if len(spelled) > MAX_MESSAGE_BYTES:
        return {"error": f"the result of {name} is larger than {MAX_MESSAGE_BYTES // 2**20} MiB"}
    return {"result": json.loads(spelled)}  # plain data, whatever classes the tool made it of


def text_of(message: dict[str, Any], key: str) -> str:
    text = message.get(key)
    if not isinstance(text, str):
        raise BrokenChannel(f"a message on the channel of tools has no text `{key}`")
    return text


def writable(text: str) -> str:
    """The text with a question mark for each half of a surrogate pair, which no file or reply can hold."""
    return text.encode("utf-8", "replace").decode()


async def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    content = marshal.dumps(message)
    writer.write(len(content).to_bytes(4, "big") + content)
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any]:
    num_bytes = int.from_bytes(await reader.readexactly(4), "big")
    if num_bytes > MAX_MESSAGE_BYTES:
        raise BrokenChannel(f"a message on the channel of tools is larger than {MAX_MESSAGE_BYTES // 2**20} MiB")
    try:
        message = json.loads((await reader.readexactly(num_bytes)).decode())
    except (ValueError, RecursionError):
        raise BrokenChannel("a message on the channel of tools is not JSON") from None
    if not isinstance(message, dict):
        raise BrokenChannel("a message on the channel of tools is no object")
    return message
