"""Scripts played through the interface of a model, under its limits."""

import threading
from dataclasses import replace

import pytest

from slimrl.environments.scripts import demonstration_of
from slimrl.errors import UserError
from slimrl.eval.baselines import SCRIPTS, script_of, scripted, turns_of
from slimrl.eval.evaluate import evaluation_of, held_out_tasks, play_tasks
from slimrl.types import Message, SamplingParams, Task
from tests.eval.episodes import Sums
from tests.rollout.scripted import CHAT, OneTask, Quiz, ScriptedClient, make_context


def played(name: str, max_tokens: int = 20, **limits: int):
    context = make_context(ScriptedClient([[5]]))  # which is never asked
    context = replace(context, limits=replace(context.limits, **limits))
    tasks = held_out_tasks([Sums()], "test", 6)
    sampling = SamplingParams(max_tokens=max_tokens)
    return play_tasks(tasks, scripted(SCRIPTS[name], context), sampling, lambda asked, rollout: None)


def test_the_expert_is_right_in_a_real_episode():
    for rollout in played("expert"):
        assert rollout.reward == 1.0 and not rollout.failure
        assert [message["role"] for message in rollout.messages] == ["user", "assistant", "user", "assistant"]
        assert rollout.metrics["turns"] == 2.0


def test_playing_at_random_is_seeded_and_mostly_wrong():
    rewards = [rollout.reward for rollout in played("random")]
    assert rewards == [rollout.reward for rollout in played("random")] and sum(rewards) < 4


def test_a_script_has_the_limits_of_a_model():
    assert all(rollout.metrics["unfinished"] for rollout in played("expert", max_turns=1))
    assert all(rollout.metrics["truncated"] for rollout in played("expert", max_tokens=1))
    assert {rollout.failure for rollout in played("expert", seq_len=10)} == {"prompt_too_long"}


class Slow(Sums):
    """Whose expert does not come to an end on every second task."""

    def __init__(self, end: threading.Event) -> None:
        super().__init__()
        self._end = end

    def demonstrate(self, task: Task) -> list[Message]:
        if task.data["number"] % 2:
            self._end.wait()
        return super().demonstrate(task)


def test_a_script_that_hangs_is_a_failed_rollout():
    end = threading.Event()
    context = make_context(ScriptedClient([[5]]))
    context = replace(context, limits=replace(context.limits, timeout_s=0.3))
    tasks = held_out_tasks([Slow(end)], "test", 6)
    rollouts = play_tasks(tasks, scripted(SCRIPTS["expert"], context), SamplingParams(20), lambda asked, rollout: None)
    end.set()
    assert [rollout.failure for rollout in rollouts] == ["", "timeout"] * 3
    assert "the script took longer than episode_timeout_s = 0.3 s" in rollouts[1].failure_detail
    assert evaluation_of("scripted", rollouts).reward.num == 3


def test_turns_are_those_that_supervised_training_sees():
    taskset = Sums()
    turns = turns_of(CHAT, demonstration_of(taskset, taskset.tasks("test")[0]))
    assert [CHAT.full_text(turn) for turn in turns] == ["hm<|im_end|>", "1<|im_end|>"]


class Cast(Sums):
    """With two scripts of its own."""

    def play_as(self, name: str, task: Task, seed: int) -> list[Message]:
        if name not in ("silent", "right"):
            raise UserError(f"there is no script `{name}`")
        return self._said(task, "hm", task.data["answer"] if name == "right" else "...")


def test_a_script_of_the_environments_own_is_played_by_its_name():
    context = make_context(ScriptedClient([[5]]))
    for name, reward in (("script:right", 1.0), ("script:silent", 0.0)):
        script, tasks = script_of(name), held_out_tasks([Cast()], "test", 3)
        assert script is not None
        rollouts = play_tasks(tasks, scripted(script, context), SamplingParams(20), lambda asked, rollout: None)
        assert [rollout.reward for rollout in rollouts] == [reward] * 3


def test_a_baseline_that_is_no_script_is_a_model():
    assert script_of("smollm2-135m") is None and script_of("constant") is None
    assert script_of("expert") is SCRIPTS["expert"]


@pytest.mark.parametrize(
    ("taskset", "message"),
    [(Cast(), "there is no script `loud`"), (Sums(), r"Sums has no scripts: take `script:loud` from the baselines")],
)
def test_a_script_that_is_not_there_is_named(taskset: Sums, message: str):
    script = script_of("script:loud")
    assert script is not None
    with pytest.raises(UserError, match=message):
        script(taskset, taskset.tasks("test")[0], 0)


def test_a_taskset_without_a_script_is_named():
    taskset = OneTask(Quiz)
    for name, missing in (("random", "play_at_random"), ("expert", "demonstrate")):
        with pytest.raises(UserError, match=rf"OneTask has no `{missing}\(\)`"):
            SCRIPTS[name](taskset, taskset.tasks("test")[0], 0)
