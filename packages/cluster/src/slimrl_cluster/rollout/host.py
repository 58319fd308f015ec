"""A host of environments: it starts worker processes on its machine for a run elsewhere, and stops them with that run.

`remote.py` is the other side, and describes the protocol. Connections without the key are refused. A worker is a child
of the host. When the run closes its connection, or falls silent, its worker is killed with all its descendants.
"""

import hmac
import secrets
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from slimrl.rollout.worker.program import ChildProgram
from slimrl.rollout.worker.wire import WireError, receive_message, send_message

ACCEPT_S = 0.5  # seconds of pause after a connection that could not be accepted
HELLO_S = 10.0  # seconds for a run to send its request
BEAT_S = 1.0  # seconds between two reports on a worker


class WorkerHost:
    """Listens at `address`, on a free port unless one is given; `serve` answers until `close`."""

    def __init__(self, host: str, key: str, port: int = 0) -> None:
        self._key, self._is_closed = key, False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family)
        self.address = f"{host}:{self._listening.getsockname()[1]}"
        self._programs: set[ChildProgram] = set()
        self._joining: dict[str, tuple[threading.Event, list[socket.socket]]] = {}

    def serve(self) -> None:
        """Answer runs, each in its own threads, until the host is closed."""
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError as error:
                if self._is_closed:
                    return
                print(f"a run could not be answered: {error.strerror or error}", flush=True)
                time.sleep(ACCEPT_S)  # for example until other programs close files
                continue
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Stop listening, and kill all workers with their descendants."""
        self._is_closed = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for program in [*self._programs]:
            program.kill()

    def _answer(self, connection: socket.socket) -> None:
        """Answer one connection: start a new worker, or make the connection a worker's socket."""
        try:
            connection.settimeout(HELLO_S)
            match receive_message(connection):
                case {"key": str(key), "do": "start", "variables": dict(variables)} if self._knows(key):
                    self._run(connection, {str(name): str(value) for name, value in variables.items()})
                    return
                case {"key": str(key), "do": "join", "ticket": str(ticket)} if self._knows(key):
                    if waiting := self._joining.pop(ticket, None):
                        connection.settimeout(None)
                        waiting[1].append(connection)
                        waiting[0].set()
                        return
        except (OSError, WireError):
            pass
        connection.close()

    def _knows(self, key: str) -> bool:
        return hmac.compare_digest(*(text.encode("utf-8", "surrogatepass") for text in (key, self._key)))

    def _run(self, control: socket.socket, variables: dict[str, str]) -> None:
        """Start a worker when its socket is connected, and report on it until it ends or nobody listens."""
        ticket, arrived, theirs = secrets.token_hex(16), threading.Event(), list[socket.socket]()
        self._joining[ticket] = arrived, theirs
        sending = threading.Lock()  # the worker's output is sent by a thread of its own

        def tell(message: dict[str, Any]) -> None:
            with sending, suppress(OSError, WireError):
                send_message(control, message)

        try:
            tell({"ticket": ticket})
            if not arrived.wait(HELLO_S):
                return
            theirs[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with sending:  # send its process id before its output
                program = ChildProgram(theirs[0], variables, lambda text: tell({"output": text}))
                with suppress(OSError):
                    send_message(control, {"pid": program.pid})
            is_wanted = threading.Event()
            is_wanted.set()
            watching = threading.Thread(target=_await_farewell, args=(control, is_wanted), daemon=True)
            watching.start()
            self._programs.add(program)
            while program.wait(BEAT_S) is None and is_wanted.is_set():
                tell({"memory": program.memory()})
            program.kill()
            status = program.wait()
            self._programs.discard(program)
            program.close()
            tell({"ended": status})
        except OSError as error:
            tell({"output": f"no process can be started for an environment: {error.strerror or error}\n"})
        finally:
            self._joining.pop(ticket, None)
            control.close()


def _await_farewell(control: socket.socket, is_wanted: threading.Event) -> None:
    """Clear the event when the run stops its worker, or is gone."""
    control.settimeout(None)
    with suppress(OSError, WireError):
        receive_message(control)
    is_wanted.clear()
