"""Sends messages between a run and an environment's worker process. A message is a JSON object, preceded by its length
in bytes. The run sends requests, and every request has a number:

    {"call": 7, "do": "step", "episode": "3", "reply": "A"}     a request of the run
    {"call": 7, "answer": {...}}                                the worker's answer
    {"quiet": 7}                                                each request up to 7 is answered, or waits for I/O

After an error, the worker's answer has another key in place of `answer`: `failed` with the reason and detail of a
RolloutError, or `refused` with the text of a UserError.
"""

import json
import re
import socket
import struct
from typing import Any

MAX_BYTES = 32 << 20  # maximum size of a message; the limits of `environments/plain.py` keep an answer below it
HEAD = struct.Struct(">I")
REASON = re.compile(r"[A-Za-z][\w.-]{0,59}", re.ASCII)  # the reason of a RolloutError, part of a metric's name


class WireError(Exception):
    """An error for a malformed or too large message. After a malformed message, the connection cannot be used."""


def encode(value: Any) -> bytes:
    """Encode a JSON value. Python's JSON allows nan and the infinities."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def send_message(sock: socket.socket, message: dict[str, Any]) -> None:
    """Send a message. If it is too large, raise WireError and send nothing."""
    body = encode(message)
    if len(body) > MAX_BYTES:
        raise WireError(f"an answer of {len(body)} bytes is longer than {MAX_BYTES}")
    sock.sendall(HEAD.pack(len(body)) + body)


def receive_message(sock: socket.socket) -> dict[str, Any] | None:
    """Return the next message; None if the other side closed the connection. Raise WireError if the message is
    malformed."""
    head = _receive(sock, HEAD.size)
    if len(head) < HEAD.size:
        return None
    (length,) = HEAD.unpack(head)
    if length > MAX_BYTES:
        raise WireError(f"it announced a message of {length} bytes, longer than {MAX_BYTES}")
    body = _receive(sock, length)
    if len(body) < length:
        return None
    try:
        message = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise WireError(f"it sent what is no JSON ({type(error).__name__})") from error
    if not isinstance(message, dict):
        raise WireError(f"it sent a {type(message).__name__} as a message")
    return message


def _receive(sock: socket.socket, length: int) -> bytes:
    """Read `length` bytes; fewer if the connection closes first."""
    data = bytearray()
    while len(data) < length and (more := sock.recv(min(length - len(data), 1 << 20))):
        data += more
    return bytes(data)
