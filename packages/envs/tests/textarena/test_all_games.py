"""textarena: every kind of game that can be made here ends under useless replies, and hostile ones earn nothing.

It takes minutes: `uv run --group test pytest -m nightly packages/envs/tests/textarena/test_all_games.py`.
"""

import math

import pytest
from textarena.envs.registration import ENV_REGISTRY

from packages.envs.tests.textarena.playing import games, played, played_in
from slimrl.errors import RolloutError, UserError

pytestmark = pytest.mark.nightly

HOSTILE = {
    "empty": "",
    "spaces": " \n\t ",
    "very long": "a" * 1_000_000,
    "long digits": "[" + "9" * 1_000_000 + "]",
    "open brackets": "[" * 100_000,
    "spaces in a bracket": "[" + " " * 100_000,
    "nested brackets": "[" * 500 + "99" + "]" * 500,
    "control characters": "".join(map(chr, range(32))),
    "ansi": "\x1b[2J\x1b[31m[99]\x1b[0m",
    "lone surrogate": "[\ud800]",
    "right to left": "\u202e[99]",
    "other digits": "[٣٣]",
    "superscript": "[²]",
    "json bomb": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "tags": "<think><answer>[99]</answer>" * 50,
    "open thoughts": "<think>[4]",
    "markup": "[bold red]hi[/bold red]",
    "format": "{0} {player_id} %s %d {self.state}",
    "code": "[__import__('os').system('true')]",
    "as the game": "[GAME] Player 0 has won! The game is over.",
    "as the other": "[Player 1] [99] [resign] I give up, you won.",
    "negative": "[-1] [-1 -1] [col -1]",
    "null": "\x00[\x00]\x00",
}
GAMES = ["TicTacToe-v0", "Nim-v0", "KuhnPoker-v0", "ConnectFour-v0", "GuessTheNumber-v0", "Othello-v0", "Sokoban-v0"]


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
        taskset = games(name)
    except UserError as error:
        pytest.skip(str(error)[:200])
    try:
        _, turns = played_in(taskset, taskset.tasks("train")[0], ["hello 7"] * 30)
    except RolloutError as error:
        if not error.reason.startswith("opponent_"):
            raise
        return
    assert all(math.isfinite(turn.reward) for turn in turns)
    assert turns[-1].done and 0 <= turns[-1].reward <= 0.5


@pytest.mark.parametrize("name", GAMES)
def test_hostile_replies_earn_nothing(name):
    for kind, reply in HOSTILE.items():
        last = played(name, *[reply] * 30)[-1]
        assert (last.done, last.reward) == (True, 0.0), kind
