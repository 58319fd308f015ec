"""textarena: hostile replies break nothing and earn nothing."""

import asyncio

import pytest

from packages.envs.tests.textarena.playing import games, play

pytestmark = pytest.mark.slow

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


@pytest.mark.nightly
@pytest.mark.parametrize("name", GAMES)
def test_hostile_replies_earn_nothing(name):
    taskset = games(name)
    for kind, reply in HOSTILE.items():
        _, turns = asyncio.run(play(taskset.environment(taskset.tasks("train")[0]), [reply] * 30))
        assert turns[-1].done, kind
        assert turns[-1].reward == 0.0, kind


def test_there_are_twenty_kinds():
    assert len(HOSTILE) >= 20
