"""The program that runs inside the sandbox: it executes a model's code and forwards its tool calls to the host.

It is started as `python -I -S runner.pyc CHANNEL`; CHANNEL is the descriptor of a Unix socket to the host. It imports
as little as possible, since each import delays every execution. It does not protect the host: the code has the same
rights as this file.

A message is its length in 4 bytes, then its content. The host sends `marshal`, which needs no import and is safe from a
trusted sender. The runner sends JSON, because the host does not trust its messages.
"""

import _signal  # type: ignore[import-not-found]  # typeshed has none; `signal` would import `enum`
import _socket
import builtins
import marshal
import os
import resource
import stat
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
PAGE_BYTES = 4096  # the memory that the smallest file takes
NOT_KEPT = "the files left in the working directory are too many or too large, and none were kept"


class ToolError(Exception):
    """A tool failed; the message is the tool's error."""


class Channel:
    """The socket to the host."""

    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(fileno=descriptor)

    def send(self, content: bytes) -> None:
        """Send a message to the host."""
        self._socket.sendall(len(content).to_bytes(4, "big"))
        self._socket.sendall(content)  # separately, since a joined copy of large files may not fit into the memory

    def receive(self) -> "Any":
        """Wait for the next message from the host."""
        return marshal.loads(self._exactly(int.from_bytes(self._exactly(4), "big")))

    def _exactly(self, num_bytes: int) -> bytes:
        content = bytearray()
        while len(content) < num_bytes:
            part = self._socket.recv(num_bytes - len(content))
            if not part:
                os._exit(1)  # the host has closed the socket
            content += part
        return bytes(content)


def main() -> None:
    """Run one program that the host sends."""
    if (descriptor := int(sys.argv[1])) != CHANNEL:
        os.dup2(descriptor, CHANNEL)
    os.closerange(CHANNEL + 1, MAX_DESCRIPTORS)
    os.write(CHANNEL, b"r")  # ready
    channel = Channel(CHANNEL)
    start = channel.receive()
    for which, limit in start["limits"]:
        resource.setrlimit(which, limit)
    home = os.getcwd()
    unpack(start["files"])
    error = run(start["code"], {name: tool(name, channel) for name in start["tools"]})
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  # `contextlib` would be one more import
            stream.flush()
        except BaseException:  # the code may have replaced the stream by any object
            pass
    num_bytes, num_files = start["pack"]
    files = b""
    if num_bytes:
        try:
            os.chdir(home)
            files = pack(num_bytes, num_files)
        except BaseException:  # too many files, no memory left, or functions that the code has replaced
            error = f"{error}\n{NOT_KEPT}".strip()
    channel.send(f'{{"done": true, "error": {quoted(error)}}}'.encode())
    if num_bytes:
        channel.send(files)
    while True:
        _signal.pause()  # the host kills this process: if it exited by itself, bubblewrap would leave a zombie


def pack(num_bytes: int, num_files: int) -> bytes:
    """Pack the regular files and directories below the working directory. Unreadable files and links are left out.
    Raises OverflowError if the files exceed `num_bytes` or `num_files`."""
    packed: dict[str, bytes | None] = {}
    num_left = num_bytes
    for folder, directories, names in os.walk("."):
        packed |= {f"{folder}/{name}": None for name in directories if not os.path.islink(f"{folder}/{name}")}
        for path in (f"{folder}/{name}" for name in names):
            found = os.lstat(path)
            num_left -= max(found.st_size, PAGE_BYTES)
            if num_left < 0 or len(packed) >= num_files:
                raise OverflowError
            if stat.S_ISREG(found.st_mode) and os.access(path, os.R_OK):
                with open(path, "rb") as file:
                    packed[path] = file.read()
    content = marshal.dumps(packed) if packed else b""
    if len(content) > num_bytes or len(packed) > num_files:
        raise OverflowError
    return content


def unpack(content: bytes) -> None:
    """Write packed files into the working directory. Earlier programs made these files, so they are untrusted."""
    if content:
        for path, text in marshal.loads(content).items():
            if text is None:
                os.mkdir(path)
            else:
                with open(path, "wb") as file:
                    file.write(text)


def tool(name: str, channel: Channel) -> "Any":
    """Return the function with which the code calls the tool `name`. The arguments of a call must be serialisable as
    JSON."""

    def call(*args: "Any", **keywords: "Any") -> "Any":
        if len(args) == 1 and not keywords and type(args[0]) is str:
            return ask(channel, name, f"[[{quoted(args[0])}], {{}}]")
        import json  # imported late, since the import takes milliseconds and most programs do not need it

        return ask(channel, name, json.dumps([args, keywords], allow_nan=False))

    call.__name__ = call.__qualname__ = name
    return call


def ask(channel: Channel, name: str, arguments: str) -> "Any":
    """Return the host's answer to a tool call. Raises ToolError if the tool failed."""
    channel.send(f'{{"tool": {quoted(name)}, "arguments": {arguments}}}'.encode())
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
    """Return the traceback with only the frames of the code, because the model has not seen this file."""
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
    """Return a line of text for each of the code's frames in a traceback, outermost first. `lines` is the code."""
    found = []
    while traceback:
        code = traceback.tb_frame.f_code
        if code.co_filename == FILE:
            where = "" if code.co_name == "<module>" else f", in {code.co_name}"
            found.append(frame(traceback.tb_lineno, where, lines))
        traceback = traceback.tb_next
    return found


def frame(number: int, where: str, lines: list[str]) -> str:
    """Return the text for one frame of a traceback: the line number, `where`, and the line of code if it exists."""
    text = lines[number - 1].strip() if number <= len(lines) else ""
    return f"  line {number}{where}: {text:.200}"


if __name__ == "__main__":
    main()
