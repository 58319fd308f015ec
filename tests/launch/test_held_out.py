"""What a resumed evaluation keeps of the episodes that an earlier one has played."""

import json
from pathlib import Path
from typing import Any

import pytest

from slimrl.eval.episodes import is_of
from slimrl.eval.evaluate import EvalPolicy
from slimrl.launch.held_out import HeldOut, HeldOutPlan
from slimrl.monitor.console import RunConsole
from slimrl.monitor.rollouts import RolloutRecord, rollout_from_json, rollout_to_json
from slimrl.rollout.episode import EpisodeSpec, run_episode
from slimrl.types import Rollout, SamplingParams, StopReason, Task
from tests.environments.dataset.files import made
from tests.rollout.scripted import CHAT, TOKENIZER, ScriptedClient, make_context

SIX = [*TOKENIZER.encode("<answer>6</answer>", add_special_tokens=False), TOKENIZER.eos_token_id]
ROWS = [{"question": "2 + 4?", "answer": "6"}, {"question": "3 + 3?", "answer": "6"}]


def evaluate(tmp_path: Path, rows: list[dict[str, str]], notes: list[str]) -> tuple[float, int]:
    """The mean reward of a policy that always replies 6, and the number of episodes that it played."""
    played = 0

    async def play(spec: EpisodeSpec) -> Rollout:
        nonlocal played
        played += 1
        return await run_episode(spec, make_context(ScriptedClient([SIX]), CHAT))

    console, sampling = RunConsole(), SamplingParams(max_tokens=50, temperature=0.0)
    console.note = lambda text, style="": notes.append(text)  # type: ignore[method-assign]
    plan = HeldOutPlan({"sums": made(tmp_path, rows, test_share=0.0)}, "train", 10, [sampling], keep=True)
    held_out = HeldOut(plan, lambda: EvalPolicy(play, 4, CHAT.full_text), tmp_path, console)
    return held_out.play("eval", "m", sampling).reward.mean, played


def test_episodes_of_a_task_that_has_changed_are_played_again(tmp_path: Path) -> None:
    notes: list[str] = []
    assert evaluate(tmp_path, ROWS, notes) == (1.0, 2)
    assert evaluate(tmp_path, ROWS, notes) == (1.0, 0)
    assert not [note for note in notes if "have changed" in note]
    assert evaluate(tmp_path, [ROWS[0], {"question": "3 + 5?", "answer": "8"}], notes) == (0.5, 1)
    (said,) = (note for note in notes if "have changed" in note)
    assert said.startswith("1 of 2 episodes in ") and "are played again" in said
    assert evaluate(tmp_path, [{"question": "0 + 0?", "answer": "0"}, *ROWS], notes) == (pytest.approx(2 / 3), 3)


@pytest.mark.parametrize(
    "data", [{}, {"n": 1}, {"page": "x" * 9_000}, {"table": [(i, float("nan")) for i in range(900)], "odd": (1, [2.5])}]
)
def test_an_episode_is_of_the_task_that_it_was_played_on(data: dict[str, Any]) -> None:
    rollout = Rollout("t", (), (), (), (), 1.0, stop_reason=StopReason.DONE, task_data=data)
    read = rollout_from_json(json.loads(json.dumps(rollout_to_json(RolloutRecord(rollout, (), "")))))
    assert is_of(read.rollout, Task("t", data))
    assert not is_of(read.rollout, Task("t", {**data, "other": 1}))
