"""The loops of a process: work that is closed, interrupted or left behind."""

import asyncio
import sys

import pytest

from slimrl.io.loop_thread import PROCESS_LOOP, LoopTasks, gather_all


def test_closing_ends_the_tasks_of_one_part_and_then_its_connections() -> None:
    ends: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(20)
        finally:
            ends.append(name)

    async def connection() -> None:
        ends.append("connection")

    one, other = LoopTasks(connection), LoopTasks()
    ours, theirs = one.start(work("ours")), other.start(work("theirs"))
    one.wait(asyncio.sleep(0))
    one.close()
    assert ends == ["ours", "connection"] and ours.done() and not theirs.done()
    other.close()


def test_the_loop_survives_what_its_work_raises(capsys: pytest.CaptureFixture[str]) -> None:
    async def leave() -> None:
        sys.exit("enough")

    with pytest.raises(SystemExit):
        PROCESS_LOOP.wait(leave())
    assert PROCESS_LOOP.wait(asyncio.sleep(0, "alive")) == "alive"
    assert "enough" in capsys.readouterr().err


def test_when_one_fails_the_others_are_cancelled_before_the_error_is_raised() -> None:
    ends: list[str] = []

    async def fail() -> None:
        raise ValueError("no")

    async def last() -> None:
        try:
            await asyncio.sleep(20)
        finally:
            await asyncio.sleep(0)
            ends.append("cleaned up")

    with pytest.raises(ValueError, match="no"):
        PROCESS_LOOP.wait(gather_all(last(), fail()))
    assert ends == ["cleaned up"]
