"""A reply of nothing but opening tags is read in linear time, whatever reads it."""

import asyncio
import time

import pytest

from slimrl.environments.find import load_taskset


@pytest.mark.parametrize("tail", ["", "</x>", "</b>"])
@pytest.mark.parametrize(
    ("env_id", "tag"),
    [("reverse-text", "reversed_text"), ("reverse-text", "answer"), ("alphabet-sort", "sorted"), ("wordle", "guess")],
)
def test_tags_that_never_end_are_read_in_linear_time(env_id: str, tag: str, tail: str) -> None:
    reply = f"<{tag}>" * 30_000 + tail
    taskset = load_taskset(env_id, {})
    episode = taskset.environment(taskset.tasks("train")[0])
    began = time.thread_time()
    turn = asyncio.run(episode.step(reply))
    assert time.thread_time() - began < 2
    assert turn.metrics["tagged"] == 0.0
