"""Ports of this machine."""

import socket


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of an address of this machine on which nothing listens at the moment."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
