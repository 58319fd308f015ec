"""Environments that do all they can to end the run that plays them (F11): each attack is a drop with its reason.

They are played in a worker process, where all are held, and in the run's own, where those are that can be.
"""

import contextlib
import json
import math
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimrl.environments.plain import plain_messages, plain_turn
from slimrl.errors import RolloutError
from slimrl.io.files import encode_line
from slimrl.io.process_tree import processes
from slimrl.monitor.rollouts import RolloutRecord, rollout_to_json
from slimrl.rollout.episode import EpisodeSpec
from slimrl.rollout.games import run_groups
from slimrl.rollout.loop import run_episodes
from slimrl.rollout.worker.process import Source
from slimrl.rollout.worker.taskset import RemoteEpisode, load_in_worker
from slimrl.rollout.worker.wire import WireError, receive_message
from slimrl.types import Rollout, SamplingParams, Task, Turn
from tests.adversary.hostile import (
    ANYWHERE,
    FAST_IN_WORKER,
    SLOW_IN_WORKER,
    STARTS,
    STEPS,
    Hostile,
    frame,
)
from tests.rollout.scripted import TOKENIZER, ScriptedClient, make_context

pytestmark = pytest.mark.slow

FILE = Path(__file__).with_name("hostile.py")
TIMEOUT_S = 1.0
GOOD = "is good"


def play(taskset: Any, *faults: str) -> list[Rollout]:
    """An episode of each attack, all at once."""
    ids = TOKENIZER.encode("A", add_special_tokens=False)
    context = make_context(ScriptedClient([[*ids, TOKENIZER.eos_token_id]]), timeout_s=TIMEOUT_S)
    groups = [
        [EpisodeSpec(taskset, Task(f"test/{fault}", {"fault": fault}), SamplingParams(max_tokens=5))]
        for fault in faults
    ]
    return [rollout for (rollout,) in run_episodes(run_groups(groups, context))]


def check(rollout: Rollout, reason: str, detail: str) -> None:
    assert re.fullmatch(reason, rollout.failure), rollout.failure_detail
    assert re.search(detail, rollout.failure_detail), rollout.failure_detail
    assert len(rollout.failure_detail) < 2100
    assert math.isnan(rollout.reward) == bool(rollout.failure)


def load(file: Path, name: str, timeout_s: float = TIMEOUT_S, **args: Any) -> Any:
    source = Source(f"{file}:{name}", args, timeout_s)
    return load_in_worker(source)


@pytest.fixture(scope="module")
def worker() -> Any:
    return load(FILE, "Hostile")


@pytest.mark.parametrize("fault", {**STARTS, **ANYWHERE})
@pytest.mark.parametrize("where", ["in the run's own process", "in a worker"])
def test_an_attack_is_a_drop_and_spoils_no_other_episode(worker: Any, fault: str, where: str) -> None:
    before, rollout, after = play(worker if where == "in a worker" else Hostile(), GOOD, fault, GOOD)
    check(rollout, *{**STARTS, **ANYWHERE}[fault][1:])
    assert (before.reward, after.reward) == (1.0, 1.0)


@pytest.mark.parametrize(
    "fault", [*FAST_IN_WORKER, *(pytest.param(fault, marks=pytest.mark.nightly) for fault in SLOW_IN_WORKER)]
)
def test_an_attack_on_the_process_costs_its_own_episode_alone(worker: Any, fault: str) -> None:
    before, rollout, after = play(worker, GOOD, fault, GOOD)
    check(rollout, *STEPS[fault][1:])
    assert (before.reward, after.reward) == (1.0, 1.0)
    (last,) = play(worker, GOOD)
    assert last.reward == 1.0 or fault in ("has a small stack", "breaks the interpreter")
    (last,) = play(worker, GOOD)
    assert last.reward == 1.0


def test_what_a_process_has_started_ends_with_it_and_no_fork_of_it_goes_on(worker: Any) -> None:
    def children() -> set[int]:
        return {pid for pid, one in processes().items() if one.parent == os.getpid() and not one.ended}

    before = children()  # which other tests may have
    play(worker, "forks", "leaves a thread", GOOD)
    (rollout,) = play(worker, "exits at once")
    assert rollout.failure == "environment_died"
    assert children() <= before


def test_a_search_path_with_what_is_no_text_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("elsewhere")])
    assert play(load(FILE, "Hostile"), GOOD)[0].reward == 1.0


def test_the_kernel_ends_a_worker_before_the_run(worker: Any) -> None:
    play(worker, GOOD)
    keeper = worker._seats[0].process().pid
    (child,) = [pid for pid, one in processes().items() if one.parent == keeper and not one.ended]
    assert Path(f"/proc/{child}/oom_score_adj").read_text() == "1000\n"


# Texts, numbers and what contains them, in the shapes that an environment may give by mistake or not.
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(max_size=3),
    st.just(np.float32("inf")),
    st.just(np.int64(3)),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=4)
    ),
    max_leaves=12,
)
MESSAGES = st.dictionaries(st.sampled_from(["role", "content", "more", "tools"]), st.one_of(st.text(), VALUES))
TURNS = st.builds(
    Turn, done=VALUES, messages=st.one_of(VALUES, st.lists(MESSAGES, max_size=3)), reward=VALUES, metrics=VALUES
)
many = settings(max_examples=30, deadline=None, derandomize=True, database=None)


@many
@given(st.one_of(TURNS, VALUES))
def test_a_turn_is_plain_data_or_refused(turn: Any) -> None:
    with contextlib.suppress(RolloutError, TypeError, ValueError, AttributeError, OverflowError):
        found = plain_turn(turn)
        assert math.isfinite(found.reward) and abs(found.reward) < 2.0**128
        again = json.loads(json.dumps(list(found.messages), allow_nan=False))
        assert again == found.messages
        encode_line({"messages": found.messages}).decode()
        assert all(type(value) is float for value in found.metrics.values())
        plain_messages(found.messages)


class FakeProcess:
    """A worker that answers every question in the same way."""

    is_over = False

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def call(self, do: str, **fields: Any) -> Any:
        return self.answer


class FakeTaskset:
    def __init__(self, answer: Any) -> None:
        self.process: Any = FakeProcess(answer)

    def environment(self, task: Task) -> RemoteEpisode:
        return RemoteEpisode(self, task, (self.process, "0/0"))  # type: ignore[arg-type]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=15,
)
ANSWERS = st.one_of(
    JSON, st.lists(MESSAGES, max_size=3), st.tuples(st.booleans(), st.lists(MESSAGES), st.floats(), JSON)
)


@many
@given(ANSWERS)
def test_whatever_a_worker_answers_is_a_rollout_that_can_be_written(answer: Any) -> None:
    (rollout,) = play(FakeTaskset(answer), "anything")
    encode_line(rollout_to_json(RolloutRecord(rollout, (), "")))
    assert rollout.failure in ("", "environment_error", "nonfinite_reward", "prompt_too_long")


@many
@given(
    st.one_of(
        st.binary(max_size=60), st.binary(max_size=20).map(frame), JSON.map(lambda x: frame(json.dumps(x).encode()))
    )
)
def test_whatever_comes_through_the_connection_is_a_message_or_an_end(data: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data)
        there.shutdown(socket.SHUT_WR)
        with contextlib.suppress(WireError):
            message = receive_message(here)
            assert message is None or isinstance(message, dict)
