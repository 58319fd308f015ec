"""One game of textarena that is being played: its random numbers, the texts for its players, and its end.

textarena draws from Python's and numpy's global generators. Each game has states of its own for both, which are in
place only during a call into it, so games that are played at once do not disturb each other or anyone else.
"""

import contextlib
import copy
import io
import math
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from slimrl.environments.find import call_user_code
from slimrl.errors import UserError
from slimrl_envs.textarena.registry import Blueprint, no_downloads

# Longer replies are cut: some games search them with patterns that take quadratic time.
MAX_REPLY_CHARS = 2_000
# The values of textarena's `ObservationType` that are treated apart.
PROMPT, ACTION, BOARD = "PROMPT", "PLAYER_ACTION", "GAME_BOARD"


@dataclass(frozen=True, slots=True)
class Seen:
    """A text for a player: of the game (`sender` -1) or of a player, and its kind."""

    sender: int
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Move:
    """The result of a move. `error` is the error of the game at it; then the game is over."""

    is_over: bool
    is_invalid: bool
    error: str = ""


class Generators:
    """The states of the global random generators that one game draws from."""

    def __init__(self, seed: int) -> None:
        self._python = random.Random(seed).getstate()
        self._numpy = np.random.RandomState(seed).get_state()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts the states in place, and keeps their progress afterwards."""
        python, numpy = random.getstate(), np.random.get_state()
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        try:
            yield
        finally:
            self._python, self._numpy = random.getstate(), np.random.get_state()
            random.setstate(python)
            np.random.set_state(numpy)


class Game:
    """A game that has started. It is fully decided by the seed and the moves."""

    def __init__(self, blueprint: Blueprint, seed: int, num_players: int) -> None:
        """Start a game. Raises UserError if it cannot be played by so many."""
        self._blueprint, self._generators, self._error = blueprint, Generators(seed), ""
        self._game = blueprint.copy_game(blueprint.model)
        self._call(
            f"textarena:{blueprint.name} cannot begin with {num_players} players",
            lambda: self._game.reset(num_players=num_players, seed=seed),
        )

    @property
    def kind(self) -> str:
        return self._blueprint.kind

    @property
    def inner(self) -> Any:
        """textarena's own object, for scripts that know the game."""
        return self._game

    @property
    def num_players(self) -> int:
        return int(self._game.state.num_players)

    @property
    def player(self) -> int:
        """The player to move."""
        return int(self._game.state.current_player_id)

    @property
    def is_over(self) -> bool:
        return bool(self._error) or bool(self._game.state.done)

    def read(self) -> list[Seen]:
        """The unread texts of the player to move, without its own moves."""
        player = self.player
        _, found = self._call("textarena failed to show the game", self._game.get_observation)
        if isinstance(found, str):
            return [Seen(-1, found.strip("\n"), BOARD)]
        seen = [_read_observation(one[0], one[1], one[2], player) for one in found]
        return [one for one in seen if not (one.kind == ACTION and one.sender == player)]

    def play(self, reply: str) -> Move:
        """Makes the move of the player whose turn it is. Any error of the game at it ends the game."""
        state, player, text = self._game.state, self.player, reply[:MAX_REPLY_CHARS]
        if self._blueprint.adds_brackets and "[" not in text and "]" not in text:
            text = f"[{text.strip()}]"
        errors, turn, had_flag = self._errors(), state.turn, self._has_flag(player)
        try:
            done, _ = self._call("the game failed", lambda: self._game.step(text))
        except UserError as error:
            self._error = str(error)
            return Move(True, True, self._error)
        again = errors > 0 and self._errors() == 0 and state.turn == turn and not done
        is_invalid = self._errors() > errors or again or (self._has_flag(player) and not had_flag)
        return Move(bool(done), is_invalid)

    def allows(self, reply: str) -> bool:
        """Whether the move would be valid, found out on a copy."""
        return not self.copy().play(reply).is_invalid

    def copy(self) -> "Game":
        """An independent copy with the same random numbers."""
        twin = object.__new__(Game)
        twin._blueprint, twin._error = self._blueprint, self._error
        twin._game = self._blueprint.copy_game(self._game)
        twin._generators = copy.copy(self._generators)
        return twin

    def raw_rewards(self) -> dict[int, float]:
        """The game's own rewards by player. Where it gives none, or no number, there is nan: some games give the text
        of an error."""
        given: Mapping[int, object] = self._game.state.rewards or {}
        numbers = {player: given.get(player) for player in range(self.num_players)}
        return {
            player: float(value) if isinstance(value, (int, float, np.number)) else math.nan
            for player, value in numbers.items()
        }

    def reason(self) -> str:
        """The reason for the end, in the words of the game."""
        found = (one.get("reason") for one in self._game.state.game_info.values())
        return self._error or next((str(one) for one in found if one), "")

    def _errors(self) -> int:
        return int(vars(self._game.state).get("error_count", 0))

    def _has_flag(self, player: int) -> bool:
        return bool(self._game.state.game_info.get(player, {}).get("invalid_move"))

    def _call(self, failure: str, call: Any) -> Any:
        # Some games print.
        with self._generators.in_place(), no_downloads(), contextlib.redirect_stdout(io.StringIO()):
            return call_user_code(failure, call)


def _read_observation(sender: object, text: object, kind: object, player: int) -> Seen:
    """An observation. Some games for one player log a move with its parts in another order: it is the player's own."""
    if not isinstance(sender, int) or not isinstance(kind, Enum):
        return Seen(player, str(text), ACTION)
    return Seen(sender, str(text).strip("\n"), kind.name)


def as_text(seen: list[Seen]) -> str:
    """Join texts into one. Of several boards with the same first line only the last stays."""
    last = {_title(one): number for number, one in enumerate(seen) if one.kind == BOARD}
    kept = [one for number, one in enumerate(seen) if one.kind != BOARD or last[_title(one)] == number]
    texts = (one.text if one.sender < 0 else f"Player {one.sender}: {one.text}" for one in kept)
    return "\n\n".join(filter(None, texts))


def _title(seen: Seen) -> str:
    return re.sub(r"\d+", "0", seen.text.partition("\n")[0])
