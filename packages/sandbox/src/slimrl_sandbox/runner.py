"""The program that runs inside the sandbox: it executes a model's code and forwards its tool calls to the host.

It is started as `python -I -S runner.pyc CHANNEL`; CHANNEL is the descriptor of a Unix socket to the host. It imports
as little as possible, since each import delays every execution. It does not protect the host: the code has the same
rights as this file.

A message is its length in 4 bytes, then its content. The host sends `marshal`, which needs no import and is safe from a
trusted sender. The host trusts no message, so it receives JSON.
"""

import _signal  # type: ignore[import-not-found]  # typeshed has none; `signal` would import `enum`
import _socket
import builtins
import marshal
import os
import resource
import sys
from _json import encode_basestring_ascii as quoted  # `json` itself takes milliseconds to import

TYPE_CHECKING = False  # mypy knows this name from `typing`, whose import would take longer than most programs
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

FILE = "<code>"
MAX_FRAMES = 20
CHANNEL = 3  # the descriptor to which the socket is moved, so that all higher ones can be closed
MAX_DESCRIPTORS = 2**16


class ToolError(Exception):
    """A tool failed; the message is the tool's error."""


class Channel:
    """The socket to the host."""

    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(fileno=descriptor)

    def hand_over(self, descriptor: int) -> None:
        """Send the host a descriptor of an open file."""
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor.to_bytes(4, sys.byteorder))
        self._socket.sendmsg([b"r"], [rights])

    def send(self, text: str) -> None:
        """Send a message to the host."""
        content = text.encode()
        self._socket.sendall(len(content).to_bytes(4, "big") + content)

    def receive(self) -> "Any":
        """Wait for the next message from the host."""
        return marshal.loads(self._exactly(int.from_bytes(self._exactly(4), "big")))

    def _exactly(self, num_bytes: int) -> bytes:
        content = b""
        while len(content) < num_bytes:
            part = self._socket.recv(num_bytes - len(content))
            if not part:
                os._exit(1)  # the host is gone
            content += part
        return content


def main() -> None:
    """Run one program that the host sends."""
    if (descriptor := int(sys.argv[1])) != CHANNEL:
        os.dup2(descriptor, CHANNEL)
    os.closerange(CHANNEL + 1, MAX_DESCRIPTORS)
    channel = Channel(CHANNEL)
    scratch = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    channel.hand_over(scratch)
    os.close(scratch)
    start = channel.receive()
    for which, limit in start["limits"]:
        resource.setrlimit(which, limit)
    tools = {name: tool(name, channel) for name in start["tools"]}
    error = run(start["code"], tools | {name: json_tool(name, channel) for name in start["json_tools"]})
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  # `contextlib` would be one more import
            stream.flush()
        except BaseException:  # the code may have replaced the stream by any object
            pass
    channel.send(f'{{"done": true, "error": {quoted(error)}}}')
    while True:
        _signal.pause()  # the host kills this process: if it exited by itself, bubblewrap would leave a zombie


def tool(name: str, channel: Channel) -> "Any":
    """Return the function by which code calls a tool. It takes one text, by position or by any keyword."""

    def call(*args: str, **keywords: str) -> "Any":
        values = [*args, *keywords.values()]
        if len(values) != 1 or not isinstance(values[0], str):
            raise TypeError(f'{name} takes one text, as in {name}("text")')
        return ask(channel, name, str(values[0]))

    call.__name__ = call.__qualname__ = name
    return call


def json_tool(name: str, channel: Channel) -> "Any":
    """Return the function by which code calls a tool that takes any JSON arguments."""

    def call(*args: "Any", **keywords: "Any") -> "Any":
        import json  # late, since it takes milliseconds, and most programs need none

        return ask(channel, name, json.dumps([args, keywords], allow_nan=False))

    call.__name__ = call.__qualname__ = name
    return call


def ask(channel: Channel, name: str, argument: str) -> "Any":
    """Return the host's answer to a tool call. Raises ToolError if the tool failed."""
    channel.send(f'{{"tool": {quoted(name)}, "argument": {quoted(argument)}}}')
    reply = channel.receive()
    if "error" in reply:
        raise ToolError(reply["error"])
    return reply["result"]


def run(code: str, tools: "dict[str, Any]") -> str:
    """Run the code as the module `__main__` and return the traceback that stopped it, or an empty text."""
    module = type(sys)("__main__")
    vars(module).update({"__builtins__": builtins, "ToolError": ToolError, **tools})
    sys.modules["__main__"] = module
    sys.argv = [FILE]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # output before a time-out is kept
    try:
        exec(compile(code, FILE, "exec", dont_inherit=True), vars(module))
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()  # waits for threads, as at an exit
    except SystemExit as error:
        return "" if error.code in (None, 0) else f"SystemExit: {error.code!s:.1000}"
    except BaseException as error:
        try:
            return description(error, code.splitlines())
        except BaseException:  # raised by the exception's own methods
            return "an exception that cannot be told"
    return ""


def description(error: BaseException, lines: list[str]) -> str:
    """Return the traceback with only the frames of the code: a model has not seen this file."""
    frames = list(own_frames(error.__traceback__, lines))
    if isinstance(error, SyntaxError) and error.filename == FILE and error.lineno:
        frames.append(frame(error.lineno, "", lines))
    if len(frames) > MAX_FRAMES:
        kept = MAX_FRAMES // 2
        frames[kept:-kept] = [f"  [{len(frames) - 2 * kept} more calls]"]
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except BaseException:
        text = "<the exception's text cannot be had>"
    if len(text) > 2000:
        text = f"{text[:1000]} [...] {text[-1000:]}"
    name = type(error).__name__
    return "\n".join(["Traceback (most recent call last):", *frames, f"{name}: {text}" if text else name])


def own_frames(traceback: "TracebackType | None", lines: list[str]) -> list[str]:
    """Return the lines of a traceback for the frames of the code, outermost first."""
    found = []
    while traceback:
        code = traceback.tb_frame.f_code
        if code.co_filename == FILE:
            where = "" if code.co_name == "<module>" else f", in {code.co_name}"
            found.append(frame(traceback.tb_lineno, where, lines))
        traceback = traceback.tb_next
    return found


def frame(number: int, where: str, lines: list[str]) -> str:
    """Return a traceback's line for one frame, with the line of code if it exists."""
    text = lines[number - 1].strip() if number <= len(lines) else ""
    return f"  line {number}{where}: {text:.200}"


if __name__ == "__main__":
    main()
