"""The loops of a process: work that is closed, interrupted or left behind."""

import asyncio
import os
import sys
import threading
from concurrent.futures import CancelledError, Future

import pytest

from slimrl.io import loop_thread
from slimrl.io.loop_thread import PROCESS_LOOP, LoopTasks, LoopThread, gather_all


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


def test_work_that_a_task_starts_while_its_part_closes_is_cancelled() -> None:
    events: list[str] = []

    async def late() -> None:
        events.append("late")

    async def follow() -> None:
        try:
            await asyncio.sleep(20)
        finally:
            events.append("follow")
            started.append(part.start(late()))

    async def connection() -> None:
        events.append("connection")

    started: list[Future[None]] = []
    part = LoopTasks(connection)
    part.start(follow())
    part.wait(asyncio.sleep(0))
    part.close()
    started.append(part.start(late()))
    for future in started:
        with pytest.raises(CancelledError):
            future.result(10)
    assert events == ["follow", "connection"]


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
    with pytest.raises(ValueError, match="no"):
        PROCESS_LOOP.wait(gather_all(fail(), last(), last(), at_once=1))
    assert ends == ["cleaned up"] * 2  # the third one never started


def test_a_limit_holds_and_the_results_keep_their_order() -> None:
    running: list[int] = []

    async def run(number: int) -> tuple[int, int]:
        running.append(number)
        await asyncio.sleep(0.01 if number == 0 else 0)
        most = len(running)
        running.remove(number)
        return number, most

    numbers, most = zip(*PROCESS_LOOP.wait(gather_all(*map(run, range(6)), at_once=2)), strict=True)
    assert numbers == (0, 1, 2, 3, 4, 5) and max(most) == 2


def test_a_loop_whose_thread_is_held_is_left_when_its_part_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "CLOSE_S", 0.1)
    loop, free, is_held = LoopThread("held"), threading.Event(), threading.Event()

    async def hold() -> None:
        is_held.set()
        free.wait(20)

    tasks = LoopTasks(loop=loop)
    tasks.start(hold())
    assert is_held.wait(20)
    held = loop.ident
    tasks.close()
    loop.wait(asyncio.sleep(0))
    free.set()
    assert loop.ident != held


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_starts_a_loop_of_its_own() -> None:
    PROCESS_LOOP.wait(asyncio.sleep(0))
    child = os.fork()
    if not child:
        threading.Timer(20, os._exit, (1,)).start()
        PROCESS_LOOP.wait(asyncio.sleep(0))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
