"""Scripts played through the interface of a model, under its limits."""

import threading
from collections.abc import Sequence

import pytest

from slimrl.environments.scripts import demonstrate
from slimrl.errors import UserError
from slimrl.eval.baselines import make_script_policy, script_of, turns_of
from slimrl.eval.evaluate import evaluation_of, play_tasks, tasks_held_out
from slimrl.types import Message, Rollout, SamplingParams, Script, Task, Taskset
from tests.eval.episodes import Sums
from tests.rollout.scripted import CHAT, OneTask, Quiz, ScriptedClient, make_context


class Slow(Sums):
    """A taskset with an expert that does not come to an end on every second task."""

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


class Several(Sums):
    """With two scripts of its own."""

    @property
    def scripts(self) -> dict[str, Script]:
        return {
            "right": lambda task, seed: self._said(task, "hm", task.data["answer"]),
            "silent": lambda task, seed: self._said(task, "hm", "..."),
        }


def played(name: str, taskset: Taskset | None = None, max_tokens: int = 20, **limits: float) -> list[Rollout]:
    context = make_context(ScriptedClient([[5]]), **limits)  # the client is never asked
    tasks = tasks_held_out({"sums": taskset or Sums()}, "test", 6)
    script, sampling = script_of(name), SamplingParams(max_tokens=max_tokens)
    assert script is not None
    return play_tasks(tasks, make_script_policy(script, context), sampling, lambda rollout: None)


def test_the_expert_is_right_in_a_real_episode_and_playing_at_random_is_seeded_and_mostly_wrong():
    for rollout in played("expert"):
        assert rollout.reward == 1.0 and not rollout.failure
        assert [message["role"] for message in rollout.messages] == ["user", "assistant", "user", "assistant"]
        assert rollout.metrics["turns"] == 2.0
    rewards = [rollout.reward for rollout in played("random")]
    assert rewards == [rollout.reward for rollout in played("random")] and sum(rewards) < 4


def test_a_script_has_the_limits_of_a_model():
    assert all(rollout.metrics["unfinished"] for rollout in played("expert", max_turns=1))
    assert all(rollout.metrics["truncated"] for rollout in played("expert", max_tokens=1))
    assert {rollout.failure for rollout in played("expert", seq_len=10)} == {"prompt_too_long"}


def test_a_script_that_hangs_is_a_failed_rollout():
    end = threading.Event()
    rollouts = played("expert", Slow(end), timeout_s=0.3)
    end.set()
    assert [rollout.failure for rollout in rollouts] == ["", "timeout"] * 3
    assert "the script took longer than episode_timeout_s = 0.3 s" in rollouts[1].failure_detail
    assert evaluation_of("scripted", rollouts).reward.num == 3


def test_turns_are_those_that_supervised_training_sees():
    taskset = Sums()
    turns = turns_of(CHAT, demonstrate(taskset, taskset.tasks("test")[0]))
    assert [CHAT.full_text(turn) for turn in turns] == ["hm<|im_end|>", "1<|im_end|>"]


def test_a_script_of_the_environments_own_is_played_by_its_name_and_any_other_baseline_is_a_model():
    for name, reward in (("script:right", 1.0), ("script:silent", 0.0)):
        assert [rollout.reward for rollout in played(name, Several())] == [reward] * 6
    assert script_of("smollm2-135m") is None and script_of("constant") is None


@pytest.mark.parametrize(
    ("name", "taskset", "message"),
    [
        ("script:loud", Several(), "Several has no script `loud`"),
        ("script:loud", OneTask(Quiz), "OneTask has no script `loud`. It has none."),
        ("random", OneTask(Quiz), "OneTask has no script `random`"),
    ],
)
def test_a_script_that_is_not_there_is_named(name: str, taskset: Taskset, message: str):
    script = script_of(name)
    assert script is not None
    with pytest.raises(UserError, match=message):
        script(taskset, taskset.tasks("test")[0], 0)
