"""Ports of this machine."""

import socket


def free_port(address: str = "127.0.0.1") -> int:
    """A port of an address of this machine that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
