"""Executions under the real isolation, each in a sandbox of its own."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.process_tree import find_process_tree, start_time
from slimrl_sandbox.base import Execution, Limits, Tools
from slimrl_sandbox.local import BubblewrapSandbox


def shout(text: str) -> str:
    """The text in capitals."""
    return text.upper()


def broken(text: str) -> str:
    """Fails."""
    raise KeyError(f"there is no {text}")


TOOLS: Tools = {"shout": shout, "broken": broken}
Run = Callable[..., Execution]


def run_all(
    codes: Sequence[str], *, session_id: str = "", timeout_s: float = 20.0, **settings: object
) -> list[Execution]:
    """One after the other in one sandbox. `settings` are those of the sandbox, and limits."""
    names = {"tools", "isolation", "num_at_once"} & settings.keys()
    chosen = {"tools": TOOLS, **{name: settings.pop(name) for name in names}}

    async def scenario() -> list[Execution]:
        async with BubblewrapSandbox(limits=Limits(**settings), **chosen) as sandbox:  # type: ignore[arg-type]
            return [await sandbox.run(code, session_id, timeout_s) for code in codes]

    return asyncio.run(scenario())


@pytest.fixture(scope="session")
def isolated() -> None:
    """Skips a test where code cannot be isolated."""
    try:
        run_all([""])
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture
def run(isolated: None) -> Run:
    """Runs one program; fails if it takes much longer than it may."""

    def run_one(code: str, **settings: object) -> Execution:
        return run_all([code], **settings)[0]

    return run_one


def processes_in(root: int) -> list[int]:
    """The processes whose root is the file system with this `st_dev`: each execution has one of its own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                is_zombie = "\nState:\tZ" in (entry / "status").read_text()  # not all systems' first process reaps
                if (entry / "root").stat().st_dev == root and not is_zombie:
                    found.append(int(entry.name))
            except OSError:  # it ended, or belongs to another user
                continue
    return found


def processes() -> set[int]:
    """The processes that this one started, in all generations."""
    return set(find_process_tree({os.getpid(): start_time(os.getpid())}))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = processes()
    yield
    deadline = time.monotonic() + 10
    while (left := processes() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left
