"""textarena: every kind of game that can be made here ends under useless replies.

It takes minutes: `uv run --group test pytest -m nightly packages/envs/tests/textarena/test_all_games.py`.
"""

import math

import pytest
from textarena.envs.registration import ENV_REGISTRY

from packages.envs.tests.episodes import turns_of
from slimrl.environments.find import load_taskset
from slimrl.errors import RolloutError, UserError

pytestmark = pytest.mark.nightly


def kinds() -> list[str]:
    """One id of each kind of game."""
    first: dict[object, str] = {}
    for name, spec in ENV_REGISTRY.items():
        if not name.endswith(("-raw", "-train")):
            first.setdefault(spec.entry_point, name)
    return list(first.values())


@pytest.mark.parametrize("name", kinds())
def test_useless_replies_end_a_game(name):
    try:
        taskset = load_taskset(f"textarena:{name}", {})
    except UserError as error:
        pytest.skip(str(error)[:200])
    try:
        turns = turns_of(taskset, taskset.tasks("train")[0], ["hello 7"] * 30)
    except RolloutError as error:
        if not error.reason.startswith("opponent_"):
            raise
        return
    assert all(math.isfinite(turn.reward) for turn in turns)
    assert turns[-1].done and 0 <= turns[-1].reward <= 0.5
