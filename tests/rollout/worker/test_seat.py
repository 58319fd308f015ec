"""A seat gives up a process that cannot be replaced."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from slimrl.errors import RolloutError, UserError
from slimrl.rollout.worker.process import WorkerProcess
from slimrl.rollout.worker.taskset import MAX_DEATHS, Seat


def test_a_process_that_cannot_be_replaced_is_given_up_though_the_last_one_had_stepped() -> None:
    ended: Any = SimpleNamespace(is_over=True, has_stepped=True, end="ended by SIGKILL")
    num_started = 0

    def start() -> WorkerProcess:
        nonlocal num_started
        num_started += 1
        if num_started == 1:
            return cast(WorkerProcess, ended)
        raise UserError("there is no memory")

    seat = Seat(0, start, [])
    seat.open()
    for _ in range(MAX_DEATHS + 5):
        with pytest.raises(RolloutError) as failed:
            seat.process()
    assert num_started == 1 + MAX_DEATHS and f"has ended {MAX_DEATHS} times" in str(failed.value.detail)
