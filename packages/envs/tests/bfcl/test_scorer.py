"""The rewards of `bfcl:` equal the verdicts of BFCL's own scorer, on right and on damaged replies."""

import random

import pytest

from packages.envs.tests.episodes import reward_of, turns_of
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.types import Rollout
from slimrl_envs.bfcl.calls import Call, right_calls, write_calls
from slimrl_envs.bfcl.package import load_entries
from slimrl_envs.bfcl.taskset import DONE, MULTI, SINGLE

pytest.importorskip("bfcl_eval", reason="needs bfcl-eval, without its requirements")
pytestmark = pytest.mark.slow


def damage(rng: random.Random, calls: list[Call]) -> list[Call]:
    """Return the calls with one mistake, or with none."""
    if not calls:
        return calls
    place = rng.randrange(len(calls))
    name, arguments = calls[place]
    key = rng.choice([*arguments, ""])
    with_other = {one: value for one, value in arguments.items() if one != key}
    others = [
        [],
        [(name, arguments)] * 2,
        [("no_such_function", arguments)],
        [(name, with_other)],
        [(name, {**arguments, "extra": 1})],
        [(name, {**arguments, key: "other"} if key else arguments)],
    ]
    changed = [*calls[:place], *rng.choice(others), *calls[place + 1 :]]
    return rng.sample(changed, len(changed)) if rng.random() < 0.3 else changed


@pytest.mark.parametrize("category", SINGLE + MULTI)
def test_damaged_replies_are_scored_as_by_bfcl(
    category: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    # Its modules make directories when they are imported, which is once for all tests.
    monkeypatch.setenv("BFCL_PROJECT_ROOT", str(tmp_path_factory.getbasetemp()))
    from benchmarks.checks.bfcl_scorer import score

    taskset, entries = load_taskset(f"bfcl:{category}", {"held_out": "all"}), load_entries(category)
    verdicts = set()
    for task in tasks_of(taskset, "test")[:60]:
        rng, replies = random.Random(task.id), []
        for calls in right_calls(entries[task.id]):
            given = damage(rng, calls) if rng.random() < 0.5 else calls
            replies += [write_calls(given), DONE] if given else [DONE]
        replies = replies if category in MULTI else replies[:1]
        reward = reward_of(turns_of(taskset, task, replies))
        rollout = Rollout(task.id, (), (), (), (), reward)
        assert score(category, task.id, rollout, replies) == (reward == 1.0), replies
        verdicts.add(reward)
    assert verdicts == ({1.0} if category == "irrelevance" else {0.0, 1.0})
