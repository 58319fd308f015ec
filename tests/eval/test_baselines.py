"""Scripts played through the interface of a model, under its limits."""

import threading
from collections.abc import Sequence

import pytest

from slimrl.environments.scripts import demonstrate
from slimrl.errors import UserError
from slimrl.eval.baselines import make_script_policy, script_of, turns_of
from slimrl.eval.evaluate import evaluation_of, play_tasks, tasks_held_out
from slimrl.types import Message, SamplingParams, Script, Task, Taskset
from tests.eval.episodes import Sums
from tests.rollout.scripted import CHAT, OneTask, Quiz, ScriptedClient, make_context


def played(name: str, max_tokens: int = 20, **limits: int):
    context = make_context(ScriptedClient([[5]]), **limits)  # which is never asked
    tasks = tasks_held_out({"sums": Sums()}, "test", 6)
    sampling = SamplingParams(max_tokens=max_tokens)
    return play_tasks(tasks, make_script_policy(script_of(name), context), sampling, lambda rollout: None)


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
    """A taskset whose expert does not come to an end on every second task."""

    def __init__(self, end: threading.Event) -> None:
        super().__init__()
        self._end = end

    @property
    def scripts(self) -> dict[str, Script]:
        return {"expert": self._solve}

    def _solve(self, task: Task, seed: int) -> Sequence[Message]:
        if task.data["number"] % 2:
            self._end.wait()
        return super().scripts["expert"](task, 0)


def test_a_script_that_hangs_is_a_failed_rollout():
    end = threading.Event()
    context = make_context(ScriptedClient([[5]]), timeout_s=0.3)
    tasks = tasks_held_out({"slow": Slow(end)}, "test", 6)
    rollouts = play_tasks(
        tasks, make_script_policy(script_of("expert"), context), SamplingParams(20), lambda rollout: None
    )
    end.set()
    assert [rollout.failure for rollout in rollouts] == ["", "timeout"] * 3
    assert "the script took longer than episode_timeout_s = 0.3 s" in rollouts[1].failure_detail
    assert evaluation_of("scripted", rollouts).reward.num == 3


def test_turns_are_those_that_supervised_training_sees():
    taskset = Sums()
    turns = turns_of(CHAT, demonstrate(taskset, taskset.tasks("test")[0]))
    assert [CHAT.full_text(turn) for turn in turns] == ["hm<|im_end|>", "1<|im_end|>"]


class Several(Sums):
    """With two scripts of its own."""

    @property
    def scripts(self) -> dict[str, Script]:
        return {
            "right": lambda task, seed: self._said(task, "hm", task.data["answer"]),
            "silent": lambda task, seed: self._said(task, "hm", "..."),
        }


def test_a_script_of_the_environments_own_is_played_by_its_name():
    context = make_context(ScriptedClient([[5]]))
    for name, reward in (("script:right", 1.0), ("script:silent", 0.0)):
        script, tasks = script_of(name), tasks_held_out({"several": Several()}, "test", 3)
        assert script is not None
        rollouts = play_tasks(tasks, make_script_policy(script, context), SamplingParams(20), lambda rollout: None)
        assert [rollout.reward for rollout in rollouts] == [reward] * 3


def test_a_baseline_that_is_no_script_is_a_model():
    assert script_of("smollm2-135m") is None and script_of("constant") is None
    assert script_of("expert") is not None and script_of("random") is not None


@pytest.mark.parametrize(
    ("taskset", "message"),
    [(Several(), "Several has no script `loud`"), (OneTask(Quiz), "OneTask has no script `loud`. It has none.")],
)
def test_a_script_that_is_not_there_is_named(taskset: Taskset, message: str):
    script = script_of("script:loud")
    assert script is not None
    with pytest.raises(UserError, match=message):
        script(taskset, taskset.tasks("test")[0], 0)


def test_a_taskset_without_a_script_is_named():
    taskset = OneTask(Quiz)
    for name, said in (("random", "no script `random`"), ("expert", 'no script "expert"')):
        script = script_of(name)
        assert script is not None
        with pytest.raises(UserError, match=f"OneTask has {said}"):
            script(taskset, taskset.tasks("test")[0], 0)
