"""`slimrl play` on a real terminal, or what a program takes for one: a pseudo-terminal."""

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The child makes the terminal its own, so that Ctrl-C and Ctrl-D mean what they do for a person.
PROGRAM = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from slimrl.cli import main; sys.exit(main())"
)
CTRL_C, CTRL_D = "\x03", "\x04"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>]")
PATIENCE_S = 240.0


class AtTerminal:
    """A person at a terminal of 80 columns in which `slimrl play` runs. `seen` is all so far, without control
    sequences."""

    def __init__(self, *argv: str) -> None:
        self._mine, theirs = os.openpty()
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLIMRL_", "PRIME_"))}
        environ |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
        words = [sys.executable, "-c", PROGRAM, "play", *argv]
        self.process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True
        )
        os.close(theirs)
        self._raw, self._read, self.seen = "", 0, ""

    def until(self, text: str) -> str:
        """What came up to a text, from where the last one ended."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen[self._read :]:
            assert self._receive(deadline - time.monotonic()), f"{text!r} never came:\n{self.seen}"
        end = self.seen.index(text, self._read) + len(text)
        self._read, before = end, self._read
        return self.seen[before:end]

    def types(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def interrupts(self) -> None:
        """Ctrl-C; and again, as anybody would, if nothing comes of it: Python passes over one that comes in the moment
        in which it begins to wait for a key. What was typed before must have been echoed: Ctrl-C empties the terminal's
        queue, and readline, told of a key that is gone, then waits for another one whatever is pressed."""
        for _ in range(20):
            self.types(CTRL_C)
            deadline = time.monotonic() + 5.0
            while time.monotonic() < deadline:
                if "Interrupted" in self.seen:
                    return
                self._receive(0.1)

    def ends(self) -> int:
        """The exit status, once it has ended."""
        while self._receive(PATIENCE_S):
            pass
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._mine)

    def _receive(self, timeout_s: float) -> bool:
        if not select.select([self._mine], [], [], max(0.0, timeout_s))[0]:
            return False
        try:
            data = os.read(self._mine, 65536)
        except OSError:  # how Linux says that nobody has the other end any more
            return False
        self._raw += data.decode("utf-8", "replace")
        self.seen = ESCAPE.sub("", self._raw).replace("\r\n", "\n")
        return bool(data)


@pytest.fixture
def seat() -> Iterator[Callable[..., AtTerminal]]:
    people = list[AtTerminal]()

    def sit_down(*argv: str) -> AtTerminal:
        people.append(AtTerminal(*argv))
        return people[-1]

    yield sit_down
    for person in people:
        person.close()


@pytest.fixture
def person(seat: Callable[..., AtTerminal]) -> AtTerminal:
    return seat("reverse-text", "--task", "train/w5b4o3t")


@pytest.mark.slow
def test_a_whole_game_with_panels(person: AtTerminal) -> None:
    shown = person.until("\n> ")
    assert "╭─ system ─" in shown and "╭─ user ─" in shown
    assert "│ w5b4o3t" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith(("╭", "│", "╰")))
    person.types("/expert\n")
    assert "╭─ expert ─" in person.until("Now you.")
    person.until("\n> ")
    person.types("<reversed_text>t3o4b5w\n")
    person.until("\n... ")
    person.types("</reversed_text>\n\n")
    assert "Reward: 1" in person.until("Another task?")
    person.until("[Y/n] ")
    person.types("n\n")
    assert person.ends() == 0
    assert "Traceback" not in person.seen


@pytest.mark.slow
def test_ctrl_d_ends_a_reply_and_then_the_game(person: AtTerminal) -> None:
    person.until("\n> ")
    person.types("t3o4b5w\n")
    person.until("\n... ")
    person.types(CTRL_D)
    person.until("[Y/n] ")
    person.types("\n")
    person.until("╭─ user ─")
    person.until("\n> ")
    person.types(CTRL_D)
    assert person.ends() == 0


@pytest.mark.slow
def test_ctrl_c_leaves_with_one_line(person: AtTerminal) -> None:
    person.until("\n> ")
    person.types("half a rep")
    person.until("half a rep")
    person.interrupts()
    assert person.ends() == 130
    again = "slimrl play reverse-text --task train/w5b4o3t"
    assert "Interrupted. To play again: " in person.seen and again in person.seen
    assert "Traceback" not in person.seen


SLOW = """
import asyncio
from slimrl.types import Task
class Slow:
    def tasks(self, split): return [Task(split, {})]
    def environment(self, task): return self
    async def start(self):
        print("working", flush=True)
        await asyncio.sleep(600)
    async def step(self, reply): ...
    async def close(self): print("closed", flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_leaves_while_the_environment_works(tmp_path: Path, seat: Callable[..., AtTerminal]) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    person = seat(f"{tmp_path / 'slow.py'}:Slow", "--episode_timeout_s", "900")
    person.until("working")
    person.interrupts()
    assert person.ends() == 130
    assert "closed" in person.seen and "Traceback" not in person.seen
