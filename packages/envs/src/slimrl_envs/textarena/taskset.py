"""`textarena:NAME`: a game of TextArena, such as `textarena:Wordle-v0` or `textarena:TicTacToe-v0`.

The policy plays alone, or against players who move at random. Rewards are the game's own, from 0 to 1: a win is 1, a
draw 0.5, a loss 0, and an invalid move that closes the game is worth 0.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import NonNegativeInt

from slimrl.environments.base import SUCCESS
from slimrl.environments.scripts import converse
from slimrl.errors import UserError
from slimrl.io.cache import say
from slimrl.io.text import hash_number
from slimrl.types import Message, Rollout, Script, Split, Task, Taskset
from slimrl_envs.textarena.episode import Match
from slimrl_envs.textarena.game import load_game
from slimrl_envs.textarena.players import Bot, RandomPlayer, guess_number

COUNTS = (1, 2, 3, 4, 5, 6)  # numbers of players to try
PASS = "[pass]"
# Kinds of failure by metric. The first metric that is not 0 decides.
KINDS = {"ended_by_invalid": "invalid move", "drawn": "drawn"}
# Games in which blind play has a mean reward above 0.3, each with the best blind play and its mean reward.
# `benchmarks/checks/blind_answers.py` measured them.
EASY = {
    "2048-v0-10x10": ("every move is a valid one at random", 1.0),
    "2048-v0-ultra-easy": ("every move is a valid one at random", 1.0),
    "ConnectFour": ("every reply to the player at random is `[0]`", 0.83),
    "IteratedPrisonersDilemma": ("every reply to the player at random is `[defect]`", 1.0),
    "IteratedTwoThirdsAverage": ("every reply to the player at random is `[0]`", 1.0),
    "Poker": ("every reply to the player at random is `[call]`", 1.0),
    "SecretMafia": ("every reply is `[2]`", 0.33),
    "Secretary": ("every reply is `[accept]`", 0.33),
    "SimpleNegotiation": ("every reply to the player at random is `[0]`", 0.5),
    "Snake": ("every reply is `[up]`", 0.33),
    "Surround": ("every reply to the player at random is `[up]`", 0.67),
    "Taboo": ("every reply to the player at random is `[0]`", 0.5),
    "ThreeCardMonte": ("every reply is `[0]`", 0.5),
    "ThreePlayerIPD": ("every reply to the player at random is `[0]`", 0.5),
}


@dataclass
class TextArena(Taskset):
    """A taskset of one game with a different seed for each task. The fields after `name` are the `args` of the config
    section.

    `config` has the game's own arguments, such as `max_turns`. `system` precedes the rules of the game, for example to
    let the policy think before it moves. The policy is player 0; the game decides which player starts.
    """

    name: str
    system: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    num_train: NonNegativeInt = 1000
    num_test: NonNegativeInt = 100

    def __post_init__(self) -> None:
        self._game = load_game(self.name, self.config)
        self._size = self._find_size()
        if self._size > 1:
            game = self._game.start(0, self._size)
            if RandomPlayer(random.Random(0))(game, game.read()) is None:
                raise UserError(
                    f"textarena:{self.name} does not say which moves are valid, and so has no opponent that moves at "
                    "random; take another game."
                )

    def prepare(self) -> None:
        """Report the mean reward of the best blind play, which ignores the game, if the game is in `EASY`."""
        for name in {self.name, self._game.kind} & EASY.keys():
            play, pay = EASY[name]
            say(f"textarena: {name} pays {pay:.2f} on average if {play}. Learn more than that.")

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split. A task is a seed. Training seeds are even, and test seeds are odd. The split
        `validation` has no tasks."""
        sizes: dict[Split, int] = {"train": self.num_train, "test": self.num_test}
        numbers = range(sizes.get(split, 0))
        seeds = (hash_number(f"textarena/{split}/{number}", 4) // 2 * 2 + (split == "test") for number in numbers)
        return [Task(f"{split}/{number}", {"seed": seed}) for number, seed in enumerate(seeds)]

    def environment(self, task: Task) -> Match:
        """Return the episode of a game against random players."""
        seed = task.data["seed"]
        bots = {place: RandomPlayer(random.Random(f"textarena/{seed}/{place}")) for place in range(1, self._size)}
        return Match(lambda: self._game.start(seed, self._size), bots, self.system)

    def failure_kind(self, rollout: Rollout) -> str | None:
        """Return the kind of failure; None if the policy earned the full reward, and an empty text if no kind fits."""
        if rollout.reward >= SUCCESS:
            return None
        default = "lost" if self._size > 1 and "won" in rollout.metrics else ""
        return next((kind for name, kind in KINDS.items() if rollout.metrics.get(name)), default)

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts: a random player, and an expert for GuessTheNumber."""
        found: dict[str, Script] = {
            "random": lambda task, seed: self._converse(task, RandomPlayer(random.Random(f"{seed}/{task.id}")))
        }
        if self._game.kind == "GuessTheNumber":
            found["expert"] = lambda task, seed: self._converse(task, guess_number)
        return found

    def _converse(self, task: Task, bot: Bot) -> list[Message]:
        match = self.environment(task)
        # If the bot finds no valid move, as for Mastermind's four different digits, it makes an invalid move.
        return converse(match, lambda: bot(match.game, match.last_read) or PASS)

    def _find_size(self) -> int:
        """Return the smallest number of players with which the game starts. Raise UserError if it does not start."""
        failures = []
        for count in COUNTS:
            try:
                return self._game.start(0, count).num_players
            except UserError as error:
                failures.append(str(error))
        raise UserError(failures[0])
