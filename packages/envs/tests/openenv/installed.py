"""Servers of OpenEnv, run by a Python of its own. This imports nothing of the adapter, whose extra may miss."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slimrl.io.http import is_healthy

PYTHON = os.environ.get("TEST_OPENENV_PYTHON", "")
needs_openenv = pytest.mark.skipif(
    not PYTHON,
    reason="TEST_OPENENV_PYTHON names no Python with openenv==0.10.0, whose fastmcp contradicts other packages here",
)


@contextmanager
def server_of(app: str, folder: Path = Path(__file__).parent) -> Iterator[str]:
    """The address of a server that OpenEnv's Python runs, as `served:guess` of `served.py`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [PYTHON, "-m", "uvicorn", app, "--port", str(port), "--log-level", "warning"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(folder)}) as process:
        try:
            address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 120
            while not is_healthy(address, 5.0):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            yield address
        finally:
            process.kill()
