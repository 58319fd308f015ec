"""A program that waits for a node is ended without a wait for an answer that cannot come."""

from types import SimpleNamespace
from typing import Any

import pytest

from slimrl_cluster.services.ray_programs import STOP_S, RayProgram


class Late(Exception):
    """No answer has come in time."""


@pytest.mark.parametrize("has_started", [False, True])
def test_what_waits_for_a_node_is_not_waited_for(has_started: bool) -> None:
    waited: list[float] = []
    answers = [("host", 4711, "10.0.0.2")] if has_started else []

    def get(asked: Any, timeout: float | None = None) -> Any:
        if timeout is None:
            return answers.pop()
        waited.append(timeout)
        raise Late

    ray = SimpleNamespace(
        wait=lambda asked, timeout: (asked if answers else [], []),
        get=get,
        kill=lambda actor: waited.append(-1.0),
        exceptions=SimpleNamespace(RayTaskError=KeyError, ActorUnavailableError=KeyError, RayError=Late),
    )
    method = SimpleNamespace(remote=lambda *words: None)
    actor = SimpleNamespace(stop=method, poll=method)
    program = RayProgram(ray, "sampler-0", actor, lambda: None, "a node", lambda line: None)
    program.stop()
    assert waited[-1] == -1.0 and (waited[0] == STOP_S if has_started else waited[0] < 3)
    assert program.end is not None
