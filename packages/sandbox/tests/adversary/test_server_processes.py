"""F5 and F6 against the commands as users start them: memory by headers, and half requests at a low `ulimit -n`."""

import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.slow
NUM_FILES = 150


@dataclass(frozen=True)
class Running:
    """A server, and what it writes to stderr."""

    process: subprocess.Popen[str]
    address: str
    log: Path

    def connect(self, content: bytes) -> socket.socket:
        host, port = self.address.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=10)
        with suppress(OSError):  # refused while it is still sent
            connection.sendall(content)
        return connection

    def memory_mb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) // 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(params=["inference", "sandbox"])
def server(request: pytest.FixtureRequest, tiny_dir: Path, tmp_path: Path) -> Iterator[Running]:
    command = [sys.executable, "-m", "slimrl_sandbox", "--port", "0", "--unsafe-without-isolation"]
    if request.param == "inference":
        command = [sys.executable, "-m", "slimrl", "inference", "--port", "0", "--model.name", str(tiny_dir)]
        command += ["--model.dtype", "float32", "--max_slots", "2", "--context_len", "64"]
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (NUM_FILES, NUM_FILES)),
        )
    with process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
            assert address, log.read_text(encoding="utf-8")
            yield Running(process, address[0], log)
            process.terminate()
            assert process.wait(20) in (0, 143)
        finally:
            process.kill()


@pytest.mark.nightly
def test_headers_without_end_take_no_memory(server: Running) -> None:
    before = server.memory_mb()
    head = b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A%d: b\r\n" % number for number in range(2_000_000))
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(server.connect(head))
        assert httpx.get(f"{server.address}/health", timeout=5).status_code == 200
        assert server.memory_mb() < before + 50


@pytest.mark.nightly
def test_half_requests_lock_nobody_out_and_fill_no_log(server: Running) -> None:
    used = server.cpu_s()
    with ExitStack() as stack:
        for _ in range(NUM_FILES + 50):
            stack.enter_context(server.connect(b"GET /h"))
        for _ in range(4):
            assert httpx.get(f"{server.address}/health", timeout=5).status_code == 200
            time.sleep(1)
        assert server.cpu_s() - used < 1
    assert len(server.log.read_bytes().splitlines()) == 1
