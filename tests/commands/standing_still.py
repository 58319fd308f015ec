"""The other side of a wait: a program that does nothing more, in one of three ways.

python standing_still.py WAY MARK           at once, as a server of tools or a compiler
python standing_still.py WAY MARK serve     as soon as it is asked over HTTP; prints its address before
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

WAYS = ("silent", "dead", "stopped")


def stand_still(way: str, mark: Path) -> None:
    """Write the file `mark`, then give no sign of life: as one that computes for ever, that died, or that a signal
    stopped."""
    mark.touch()
    if way == "dead":
        os._exit(1)
    if way == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        time.sleep(60)


def serve(way: str, mark: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(f"http://127.0.0.1:{server.getsockname()[1]}", flush=True)
        connection, _ = server.accept()
        connection.recv(1)
        stand_still(way, mark)


if __name__ == "__main__":
    (serve if sys.argv[3:] == ["serve"] else stand_still)(sys.argv[1], Path(sys.argv[2]))
