"""`textarena:NAME`: a game of TextArena, such as `textarena:Wordle-v0` or `textarena:TicTacToe-v0`.

The policy plays alone, against a player who moves at random or by a script, or against itself. Rewards are the game's
own, from 0 to 1: a win is 1, a draw 0.5, a loss 0, and an invalid move that closes the game is worth 0.
"""

import functools
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slimrl.environments.base import SUCCESS
from slimrl.environments.scripts import converse
from slimrl.errors import RolloutError, UserError, nearest
from slimrl.io.cache import say
from slimrl.io.settings import refuse_idle, refuse_less
from slimrl.types import Message, Rollout, Script, Split, Task, Taskset
from slimrl_envs.textarena.episode import Bot, Match, MatchEpisode
from slimrl_envs.textarena.game import Game, Seen
from slimrl_envs.textarena.legal_moves import RandomPlayer
from slimrl_envs.textarena.players import EXPERTS, OPPONENTS, Player
from slimrl_envs.textarena.registry import Blueprint, load_game
from slimrl_envs.textarena.rewards import EASY

OPPONENTS_BY = ("random", "scripted", "self")
BOTH = "both"
COUNTS = (1, 2, 3, 4, 5, 6)  # numbers of players that are tried where none is given
PASS = "[pass]"


@dataclass
class TextArena(Taskset):
    """Games of one kind, with a seed each. The fields behind `name` are the `args` of the config section.

    `opponent` is `random` (valid moves at random), `scripted` (for some games, `players.py`), or `self`: the policy
    plays all sides, which train together. `player` is the policy's place, from 0; with `both` it changes from task to
    task. `num_players` is for games that leave it free. `config` has arguments of the game's own, as `max_turns`. A
    game is lost with more than `max_invalid_moves` invalid moves; most games allow only one at a time anyway.
    """

    name: str
    opponent: str = "random"
    player: int | str = 0
    num_players: int | None = None
    max_invalid_moves: int = 10
    config: dict[str, Any] = field(default_factory=dict)
    num_train: int = 1000
    num_test: int = 100

    def __post_init__(self) -> None:
        if self.opponent not in OPPONENTS_BY:
            raise UserError(
                f"textarena: there is no `opponent` {self.opponent!r}.{nearest(self.opponent, OPPONENTS_BY)}"
            )
        refuse_less(self, {"max_invalid_moves": 0, "num_train": 0, "num_test": 0}, "textarena")
        self._blueprint: Blueprint = load_game(self.name, self.config)
        self._size = self._find_size()
        self._check_player()
        self._check_opponent()

    def prepare(self) -> None:
        """Note the reward of the best blind play where the game pays it much."""
        for name in {self.name, self._blueprint.kind} & EASY.keys():
            play, pay = EASY[name]
            if self.opponent == "random":
                say(f"textarena: {name} pays {pay:.2f} on average if {play}. Learn more than that.")

    @property
    def roles(self) -> Sequence[str]:
        return [f"player {place}" for place in range(self._size)] if self._is_self_play else ()

    @property
    def _is_self_play(self) -> bool:
        return self._size > 1 and self.opponent == "self"

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split: a seed and the policy's place each. Seeds of training are even, test seeds odd;
        `validation` has none."""
        sizes: dict[Split, int] = {"train": self.num_train, "test": self.num_test}
        return [self._task(split, number) for number in range(sizes.get(split, 0))]

    def environment(self, task: Task) -> MatchEpisode:
        """The episode of a game against the opponent; in self-play, against a scripted or random one."""
        place: int = task.data["player"]
        bots = {other: self._bot(task, other, self.opponent) for other in range(self._size) if other != place}
        return MatchEpisode(lambda: self._match(task, bots), place)

    def self_play(self, task: Task) -> Sequence[MatchEpisode]:
        """The episodes of all sides of one game."""
        match = functools.cache(lambda: self._match(task, {}))
        return [MatchEpisode(match, place) for place in range(self._size)]

    @property
    def scripts(self) -> dict[str, Script]:
        """A player at random, and for some games an expert."""
        found: dict[str, Script] = {"random": self._play_at_random}
        if expert := EXPERTS.get(self._blueprint.kind):
            found["expert"] = functools.partial(self._play_by, expert)
        return found

    def failure_kind(self, rollout: Rollout) -> str | None:
        """The kind of loss, where the policy did not earn everything."""
        if rollout.reward >= SUCCESS:
            return None
        if rollout.metrics.get("ended_by_invalid"):
            return "invalid move"
        if rollout.metrics.get("other_invalid"):
            return "invalid move of the other"
        if self._size == 1 or "won" not in rollout.metrics:
            return ""
        return "drawn" if rollout.metrics.get("drawn") else "lost"

    def _task(self, split: Split, number: int) -> Task:
        digest = hashlib.sha256(f"textarena/{split}/{number}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big") // 2 * 2 + (split == "test")
        place = number % self._size if self.player == BOTH or self._is_self_play else self.player
        return Task(f"{split}/{number}", {"seed": seed, "player": place})

    def _match(self, task: Task, bots: dict[int, Bot]) -> Match:
        game = Game(self._blueprint, task.data["seed"], self._size)
        return Match(game, bots, self.max_invalid_moves)

    def _bot(self, task: Task, place: int, opponent: str) -> Bot:
        rng = random.Random(f"textarena/{task.data['seed']}/{place}")
        script = OPPONENTS.get(self._blueprint.kind)
        if script and opponent != "random":
            return _bot_of(script, rng)
        return RandomPlayer(rng).move

    def _play_at_random(self, task: Task, seed: int) -> list[Message]:
        player = RandomPlayer(random.Random(f"{seed}/{task.id}"))
        # Where it finds no valid move, as among Mastermind's four different digits, it makes one that is not.
        return self._conversation(task, lambda game, seen: player.move(game, seen) or PASS)

    def _play_by(self, player: Player, task: Task, seed: int) -> list[Message]:
        return self._conversation(task, _bot_of(player, random.Random(f"{seed}/{task.id}")))

    def _conversation(self, task: Task, bot: Bot) -> list[Message]:
        """The conversation of a script in the policy's place."""
        place = task.data["player"]
        bots = {other: self._bot(task, other, self.opponent) for other in range(self._size) if other != place}
        match = self._match(task, bots)

        def reply() -> str:
            text = bot(match.game, match.last_read)
            if text is None:
                raise RolloutError("script_stuck", f"the script found no valid move in {task.id}")
            return text

        return converse(MatchEpisode(lambda: match, place), reply)

    def _find_size(self) -> int:
        """The number of players: the given one, or the smallest with which the game starts."""
        failures = []
        for count in (self.num_players,) if self.num_players else COUNTS:
            try:
                return Game(self._blueprint, 0, count).num_players
            except UserError as error:
                failures.append(str(error))
        raise UserError(failures[0])

    def _check_player(self) -> None:
        if self._is_self_play:
            refuse_idle(self, ["player"], "textarena", 'with `opponent = "self"`: the policy plays all sides')
        if self.player == BOTH:
            return
        if not isinstance(self.player, int) or isinstance(self.player, bool) or not 0 <= self.player < self._size:
            places = ", ".join(map(str, range(self._size)))
            raise UserError(f'textarena: `player` must be one of {places} or "{BOTH}", not {self.player!r}.')

    def _check_opponent(self) -> None:
        """Raises UserError for an opponent that this game cannot have."""
        kind = self._blueprint.kind
        if self._size == 1:
            if self.opponent != "random":
                raise UserError(f"textarena:{self.name} has one player, and so no `opponent`.")
            return
        if self.opponent == "scripted" and kind not in OPPONENTS:
            raise UserError(f"textarena:{self.name} has no scripted opponent, which only {', '.join(OPPONENTS)} have.")
        if self.opponent == "random":
            game = Game(self._blueprint, 0, self._size)
            if RandomPlayer(random.Random(0)).move(game, game.read()) is None:
                raise UserError(
                    f"textarena:{self.name} does not say which moves are valid, and so has no random opponent; take "
                    '`opponent = "self"`.'
                )


def _bot_of(player: Player, rng: random.Random) -> Callable[[Game, list[Seen]], str | None]:
    return lambda game, seen: player(game, rng)
