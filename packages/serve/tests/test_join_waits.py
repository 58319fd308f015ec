"""A server that is called to a weight group by a trainer that is missing, silent or slow. It is free again as soon as
the trainer gives up, and Ctrl-C ends it."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch.distributed

pytestmark = pytest.mark.slow  # a server as a process for each way of being silent
LIMIT_S = 10.0
Server = tuple[subprocess.Popen[str], str]
dist: Any = torch.distributed  # its published types lack `TCPStore`


def drip(connection: socket.socket) -> None:
    """Send a byte a second, and never a whole answer."""
    while True:
        connection.sendall(b"\0")
        time.sleep(1)


def half_close(connection: socket.socket) -> None:
    """Shut this end of the connection, and read on."""
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(1024):
        pass


def port_of(trainer: str | Callable[[socket.socket], None], stay: ExitStack) -> int:
    """The port of a trainer that has died ("closed"), that was stopped ("deaf"), whose other members are missing
    ("alone"), or that does the same with each connection."""
    if trainer == "alone":
        limit = timedelta(seconds=5)
        store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False, timeout=limit)
        stay.callback(lambda: store)  # it lives as long as the test
        return int(store.port)
    listener = stay.enter_context(socket.create_server(("127.0.0.1", 0)))

    def accept() -> None:
        with suppress(OSError):
            while callable(trainer):
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            assert callable(trainer)
            trainer(connection)

    threading.Thread(target=accept, daemon=True).start()
    port = int(listener.getsockname()[1])
    if trainer == "closed":
        listener.close()
    return port


@pytest.fixture(scope="module")
def server(tiny_dir: Path) -> Iterator[Server]:
    """A server as a process, and its address."""
    words = ["inference", "--port", "0", "--model.name", str(tiny_dir), "--context_len", "256", "--max_slots", "4"]
    # The type of the weights in `tiny_dir`: the default is bfloat16 where the processor is fast at it.
    command = [sys.executable, "-m", "slimrl", *words, "--model.dtype", "float32"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://[\d.:]+", process.stdout.readline())
            assert found is not None
            yield process, found[0]
        finally:
            process.kill()


def ask(url: str, body: object) -> None:
    """Post, and ignore a failure."""
    with suppress(httpx.HTTPError):
        httpx.post(url, json=body, timeout=120)


@pytest.mark.parametrize("trainer", ["closed", "deaf", "alone", drip, half_close])
def test_a_trainer_that_gives_up_frees_the_server(
    trainer: str | Callable[[socket.socket], None], server: Server, tiny_dir: Path
) -> None:
    _, url = server
    with ExitStack() as stay:
        while httpx.get(f"{url}/health").status_code != 200:
            time.sleep(0.1)
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{url}/init_weight_transfer_engine", json=call_to(port_of(trainer, stay)), timeout=1.0)
        update = {"weight_dir": str(tiny_dir), "version": 7}
        assert httpx.post(f"{url}/update_weights", json=update, timeout=LIMIT_S).json()["version"] == 7


def test_ctrl_c_ends_a_server_that_waits_for_its_trainer(server: Server) -> None:
    process, url = server  # this test is its end
    with ExitStack() as stay:
        calls = [
            threading.Thread(target=ask, args=(f"{url}/init_weight_transfer_engine", call_to(port_of(trainer, stay))))
            for trainer in (drip, "deaf")
        ]
        for call in calls:
            call.start()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
        for call in calls:
            call.join(LIMIT_S)
        assert not any(call.is_alive() for call in calls)


def call_to(port: int) -> dict[str, object]:
    """The call of a server to the group at a port."""
    group = {"master_address": "127.0.0.1", "master_port": port, "rank_offset": 1, "world_size": 2}
    return {"init_info": {**group, "packed": False}}
