"""A taskset whose episode starts a process without parent, session and environment variables, and then ends oddly."""

import ctypes
import os
import subprocess
import time
from pathlib import Path

from slimrl.types import Task, Turn


def start_daemon(file):
    """Start a program whose parent has ended, in a session of its own and without variables. A fork by Python itself
    would die with its parent."""
    command = f"/usr/bin/env setsid /bin/sh -c 'echo $$ > {file}.new; mv {file}.new {file}; exec sleep 300' &"
    subprocess.run(["/bin/sh", "-c", command], env={}, check=True)
    while not Path(file).exists():
        time.sleep(0.01)


class Daemons:
    """The daemon writes its pid to `path`. `how` names the end of the worker."""

    def __init__(self, path: str, how: str = "closed"):
        self.file, self.how = path, how

    def tasks(self, split):
        return [Task(f"{split}/0", {})]

    def environment(self, task):
        return Episode(self.file, self.how)


class Episode:
    def __init__(self, file, how):
        self.file, self.how = file, how

    async def start(self):
        start_daemon(self.file)
        return [{"role": "user", "content": "q"}]

    async def step(self, reply):
        if self.how == "exits":
            os._exit(3)
        if self.how == "segfault":
            ctypes.string_at(0)
        if self.how == "hangs":
            time.sleep(1000)
        return Turn(done=True, reward=1.0)
