"""A reply of nothing but opening tags is read in linear time, whatever reads it."""

import asyncio
import time

import pytest

from slimrl.environments.find import load_taskset
from slimrl.tools.base import ToolError
from slimrl_envs.openenv.actions import in_tag
from slimrl_sandbox.code_format import PROGRAMS, program_of

NUM = 30_000


@pytest.mark.parametrize("tail", ["", "</x>", "</b>"])
@pytest.mark.parametrize("tag", ["reversed_text", "answer", "code"])
def test_reverse_text_and_openenv_read_what_never_ends(tag, tail):
    reply = f"<{tag}>" * NUM + tail
    began = time.thread_time()
    taskset = load_taskset("reverse-text", {})
    turn = asyncio.run(taskset.environment(taskset.tasks("train")[0]).step(reply))
    assert turn.reward == 0.0 and turn.metrics["tagged"] == 0.0
    with pytest.raises(ToolError):
        in_tag(reply, tag)
    assert time.thread_time() - began < 2


def test_programs_that_never_end_are_found_in_linear_time():
    began = time.thread_time()
    calls = PROGRAMS.make({}, 500, {"isolation": "none"})()
    assert calls.call_start("<code>" * NUM) == 6 * NUM
    assert calls.call_start("x<code>1</code>") == 1
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("space", [" ", "\n"])
def test_much_space_in_a_fence_is_read_in_linear_time(space):
    began = time.thread_time()
    assert program_of(f"```python\n{space * NUM}x") == "x\n"
    assert time.thread_time() - began < 2
