"""Ports of this machine."""

import socket


def free_port() -> int:
    """A port of the loopback address that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
