"""The program of a worker on another machine: requested from a host there (`host.py`), and watched while it runs.

{"key": K, "do": "start", "variables": {...}}    the run, on the first connection, which stays to watch the program
{"ticket": T}                                    the host
{"key": K, "do": "join", "ticket": T}            the run, on the second, which becomes the program's own socket
{"pid": 4711}, then {"memory": N} again and again, {"output": "..."}, and at last {"ended": status}
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from slimrl.errors import UserError
from slimrl.rollout.worker.program import CLOSE_S, LOST_STATUS, Program, Start
from slimrl.rollout.worker.wire import WireError, receive_message, send_message

CONNECT_S = 10.0
SILENT_S = 30.0  # seconds of silence after which a host's programs count as lost
POLL_S = 0.5


class HostedProgram:
    """A program that a host has started, and reports on the connection `control`."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self.pid = pid
        self._control, self._memory = control, 0
        self._ended = threading.Event()
        self._status = LOST_STATUS
        control.settimeout(SILENT_S)
        threading.Thread(target=self._listen, name="environment's host", daemon=True).start()

    def is_running(self) -> bool:
        return not self._ended.is_set()

    def memory(self) -> int:
        return self._memory

    def kill(self) -> None:
        with suppress(OSError):
            send_message(self._control, {"do": "kill"})
        self._ended.wait(2 * CLOSE_S)

    def wait(self, seconds: float | None = None) -> int | None:
        return self._status if self._ended.wait(seconds) else None

    def close(self) -> None:
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        try:
            while message := receive_message(self._control):
                match message:
                    case {"memory": int(memory)}:
                        self._memory = memory
                    case {"output": str(text)}:
                        sys.stderr.write(text)
                    case {"ended": int(status)}:
                        self._status = status
                        return
        except (OSError, WireError):
            pass  # the host is lost, or silent
        finally:
            self._ended.set()
            self._control.close()


def start_at(find: Callable[[], str], key: str, patience_s: float) -> Start:
    """Return a function that starts a program at a host, or raises UserError if none can be used within `patience_s`
    seconds. `find` returns the address of a host, `host:port`; empty if there is none yet."""

    def start(variables: Mapping[str, str]) -> tuple[socket.socket, Program]:
        deadline, failure = time.monotonic() + patience_s, "none is there"
        while time.monotonic() < deadline:
            if address := find():
                try:
                    return _start(address, key, variables)
                except (OSError, WireError) as error:
                    failure = f"{address}: {error}"
            time.sleep(POLL_S)
        raise UserError(
            f"no host of environments can be used, for {patience_s:g} s now ({failure}). Their logs say why."
        )

    return start


def _start(address: str, key: str, variables: Mapping[str, str]) -> tuple[socket.socket, Program]:
    """Start a program through the host at an address; return its socket and it. Raises OSError or WireError."""
    name, _, port = address.rpartition(":")
    control = socket.create_connection((name, int(port)), CONNECT_S)
    try:
        send_message(control, {"key": key, "do": "start", "variables": dict(variables)})
        ticket = (receive_message(control) or {}).get("ticket")
        ours = socket.create_connection((name, int(port)), CONNECT_S)
        ours.settimeout(None)
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            send_message(ours, {"key": key, "do": "join", "ticket": ticket})
            pid = (receive_message(control) or {}).get("pid")
            if not isinstance(pid, int):
                raise WireError("the host has refused: its key is another, or it could start no process")
            return ours, HostedProgram(control, pid)
        except BaseException:
            ours.close()
            raise
    except BaseException:
        control.close()
        raise
