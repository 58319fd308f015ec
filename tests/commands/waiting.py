"""Commands that wait for a program that stands still, and how they end (docs/waits.md): by themselves, or within ten
seconds of Ctrl-C, without a traceback, and without a process that is left."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from slimrl.io.process_tree import find_marked
from tests.commands import standing_still
from tests.commands.standing_still import WAYS

MARK = "WAITS_IN_A_TEST"
LIMIT_S = 15.0  # ten seconds, and room for a busy machine
PATIENCE_S = 120.0  # until the command asks the other side


def evaluated(model: Path, place: Path, environment: str, *more: str) -> list[str]:
    words = ["eval", "--output_dir", str(place / "out"), "--model.name", str(model), "--model.dtype", "float32"]
    sizes = ["--num_examples", "4", "--seq_len", "512", "--sampling.max_tokens", "8", "--temperatures", "[0.0]"]
    return [*words, *sizes, "--env", environment, *more]


def of_rows(model: Path, place: Path, args: str) -> list[str]:
    rows = place / "rows.jsonl"
    rows.write_text("".join(f'{{"question": "Is {n} even?", "answer": "{n}"}}\n' for n in range(40)), encoding="utf-8")
    return evaluated(model, place, f'[{{id="dataset", args={{path="{rows}", {args}}}}}]')


class Waiting:
    """A command in a process group of its own, whose output goes to a file."""

    def __init__(self, words: list[str], place: Path, **variables: str) -> None:
        self.log, self.id = place / "log.txt", uuid.uuid4().hex
        environ = {**os.environ, MARK: self.id, "PYTHONPATH": os.getcwd(), **variables}
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "slimrl", *words], stdout=file, stderr=file, env=environ, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def until(self, asked: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not asked():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def ends(self, way: str = WAYS[0]) -> None:
        """Check that it ends by itself within `LIMIT_S` of the other side's death, or within `LIMIT_S` of Ctrl-C."""
        try:
            status = self.process.wait(LIMIT_S if way == "dead" else 2)
            assert status in (0, 1, 2), self.said
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGINT)
            assert self.process.wait(LIMIT_S) in (130, -signal.SIGINT), self.said
        assert "Traceback" not in self.said, self.said
        assert not self.left()

    def left(self) -> dict[int, str]:
        """What is left of it two seconds later."""
        deadline = time.monotonic() + 2
        while (found := find_marked(MARK, self.id)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def kill(self) -> None:
        for pid in find_marked(MARK, self.id):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def waiting(words: list[str], place: Path, **variables: str) -> Iterator[Waiting]:
    command = Waiting(words, place, **variables)
    try:
        yield command
    finally:
        command.kill()


def all_ways(names: list[str], slow: str) -> list:
    """Every name with every way: one of them is a slow test, the others are left to the night."""
    return [
        pytest.param(name, way, marks=pytest.mark.slow if (name, way) == (slow, "silent") else pytest.mark.nightly)
        for name in names
        for way in WAYS
    ]


@contextmanager
def standing_server(way: str, asked: Path) -> Iterator[str]:
    """A server that stands still as soon as it is asked, when it writes the file `asked`; its address."""
    words = [sys.executable, standing_still.__file__, way, str(asked), "serve"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.communicate()
