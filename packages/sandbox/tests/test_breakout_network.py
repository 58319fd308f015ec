"""Attempts to reach anybody: each against the real isolation, with somebody of the host's to be reached."""

import socket
from pathlib import Path

import pytest

from packages.sandbox.tests.conftest import Run


def nobody_came(listening: socket.socket) -> bool:
    listening.settimeout(0.05)
    try:
        listening.recv(1) if listening.type == socket.SOCK_DGRAM else listening.accept()
    except TimeoutError:
        return True
    return False


def attempt(code: str) -> str:
    return f"import socket\ntry:\n    {code}\n    print('reached')\nexcept OSError as error:\n    print('failed')"


def test_tcp_to_the_hosts_loopback(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert run(attempt(f"socket.create_connection(('127.0.0.1', {port}), 2)")).stdout == "failed\n"
        assert nobody_came(listening)


def test_tcp_to_other_machines(run: Run) -> None:
    for address in ("1.1.1.1", "10.0.0.1", "169.254.169.254"):
        assert run(attempt(f"socket.create_connection(('{address}', 80), 2)")).stdout == "failed\n"


def test_udp(run: Run) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        address = listening.getsockname()
        run(attempt(f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', {address})"))
        assert nobody_came(listening)
    outside = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))"
    assert run(attempt(outside)).stdout == "failed\n"


def test_names(run: Run) -> None:
    assert run(attempt("socket.getaddrinfo('example.com', 80)")).stdout == "failed\n"


def test_unix_sockets_of_the_host(run: Run, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        assert run(attempt(f"socket.socket(socket.AF_UNIX).connect('{tmp_path}/s')")).stdout == "failed\n"
        assert nobody_came(listening)


def test_abstract_sockets_of_the_host(run: Run) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0slimrl-test-abstract")
        listening.listen()
        code = "socket.socket(socket.AF_UNIX).connect(chr(0) + 'slimrl-test-abstract')"
        assert run(attempt(code)).stdout == "failed\n"
        assert nobody_came(listening)


@pytest.mark.parametrize("family", ["AF_VSOCK", "AF_NETLINK", "AF_PACKET", "AF_ALG", "AF_BLUETOOTH"])
def test_families_that_no_namespace_holds(run: Run, family: str) -> None:
    number = int(getattr(socket, family, 31))
    assert run(attempt(f"socket.socket({number}, socket.SOCK_DGRAM)")).stdout == "failed\n"


def test_sockets_within_still_work(run: Run) -> None:
    code = "import socket\na, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(1))"
    assert run(code).stdout == "b'x'\n"
