"""Finds a game of the package textarena by its id, starts it and plays it. This module does not depend on episodes.

textarena uses the global random generators of Python and numpy. So each `Game` has its own states of both generators,
which are installed only during a call into the game. Games that run at the same time do not affect each other or other
code.

textarena's wrappers are not used, except for the one that adds brackets: `TicTacToe-v0` reads the reply `4` as `[4]`,
and `TicTacToe-v0-raw` does not.
"""

import contextlib
import copy
import importlib
import io
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from slimrl.errors import UserError, nearest, require
from slimrl.io.user_code import call_user_code

# These games ask a model at a remote service for every answer, or for a verdict at the end.
REMOTE = ("Debate", "GuessWho", "ScenarioPlanning", "TwentyQuestions")
WORDS = "python -m nltk.downloader words averaged_perceptron_tagger_eng"
MANY = 1000  # a list with more texts is a word list; copies of a game share it, because no game changes it
# Longer replies are cut: some games search them with patterns that take quadratic time.
MAX_REPLY_CHARS = 2_000
# The names in textarena's `ObservationType` that need special treatment.
PROMPT, ACTION, BOARD = "PROMPT", "PLAYER_ACTION", "GAME_BOARD"
# Games for one player with a reward that does not measure the play.
UNSOUND = {
    "Bandit": "its reward is always the regret, since it compares the button with the whole table of probabilities",
    "Cryptarithm": "it pays the share of letters with a digit after the last move, right or wrong",
    "Set": "its reward is the number of sets, so the first one earns everything",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A text for a player to read. `sender` is the number of the player who wrote it, or -1 for the game. `kind` is the
    name of a textarena `ObservationType`."""

    sender: int
    text: str
    kind: str


class Eliminated(list[int]):
    """A list of the players that are out of a game. An attempt to add the last player raises ValueError, because
    textarena would then search for the next player in an endless loop (`FFAMultiPlayerState.step`)."""

    def __init__(self, players: Iterable[int], num_players: int) -> None:
        super().__init__(players)
        self._num_players = num_players

    def append(self, player: int) -> None:
        if len({*self, player}) == self._num_players:
            raise ValueError(f"player {player}, the last one, is out by an invalid move")
        super().append(player)


class Game:
    """A game of textarena. `load_game` makes the game, and `start` returns a started copy. The course of this copy
    depends only on the seed and the moves.

    `kind` is the game's name without its version, such as `TicTacToe`. `inner` is textarena's own object, for scripts
    that know the game.
    """

    def __init__(self, name: str, kind: str, inner: Any, adds_brackets: bool) -> None:
        self.name, self.kind, self.inner = name, kind, inner
        self._adds_brackets = adds_brackets
        self._dictionaries = [value for value in vars(inner).values() if _is_dictionary(value)]
        self._states = _states_of(0)
        self._error = ""

    def start(self, seed: int, num_players: int) -> "Game":
        """Return a fresh game with this seed. Raise UserError if the game cannot be played by `num_players` players."""
        game = self.copy()
        game._states = _states_of(seed)
        failure = f"textarena:{self.name} cannot begin with {num_players} players"
        game._call(failure, lambda: game.inner.reset(num_players=num_players, seed=seed))
        state = game.inner.state
        if "elimination_order" in vars(state):
            state.elimination_order = Eliminated(state.elimination_order, num_players=state.num_players)
        return game

    def copy(self) -> "Game":
        """Return an independent copy with the same random state."""
        twin = copy.copy(self)
        twin.inner = copy.deepcopy(self.inner, {id(one): one for one in self._dictionaries})
        return twin

    @property
    def num_players(self) -> int:
        return int(self.inner.state.num_players)

    @property
    def player(self) -> int:
        """The number of the player to move."""
        return int(self.inner.state.current_player_id)

    @property
    def is_over(self) -> bool:
        return bool(self._error) or bool(self.inner.state.done)

    def read(self) -> list[Seen]:
        """Return the texts that the player to move has not read yet, without this player's own moves."""
        player = self.player
        _, found = self._call("textarena failed to show the game", self.inner.get_observation)
        if isinstance(found, str):
            return [Seen(-1, found.strip("\n"), BOARD)]
        seen = [_read_observation(one[0], one[1], one[2], player) for one in found]
        return [one for one in seen if not (one.kind == ACTION and one.sender == player)]

    def play(self, reply: str) -> bool:
        """Play `reply` as the move of the player whose turn it is, and return True if the move is valid. If the game
        raises an error, the move is invalid and the game is over."""
        state, player, text = self.inner.state, self.player, reply[:MAX_REPLY_CHARS]
        if self._adds_brackets and "[" not in text and "]" not in text:
            text = f"[{text.strip()}]"
        errors, turn, had_flag = self._errors(), state.turn, self._has_flag(player)
        try:
            self._call("the game failed", lambda: self.inner.step(text))
        except UserError as error:
            self._error = str(error)
            return False
        again = errors > 0 and self._errors() == 0 and state.turn == turn and not state.done
        return not (self._errors() > errors or again or (self._has_flag(player) and not had_flag))

    def allows(self, reply: str) -> bool:
        """Return True if the move would be valid. The move is tried on a copy of the game."""
        return self.copy().play(reply)

    def reward(self, player: int) -> float:
        """Return the reward of a player in a finished game. It is nan if the game returns an error text instead of a
        number."""
        found = (self.inner.state.rewards or {}).get(player)
        return float(found) if isinstance(found, (int, float, np.number)) else math.nan

    def reason(self) -> str:
        """Return the game's own reason why it is over, or the error that stopped it. Return an empty text without a
        reason or an error."""
        found = (one.get("reason") for one in self.inner.state.game_info.values())
        return self._error or next((str(one) for one in found if one), "")

    def _errors(self) -> int:
        return int(vars(self.inner.state).get("error_count", 0))

    def _has_flag(self, player: int) -> bool:
        return bool(self.inner.state.game_info.get(player, {}).get("invalid_move"))

    def _call(self, failure: str, call: Callable[[], Any]) -> Any:
        """Call into the game with the game's own random state, and store the state after the call."""
        outside = random.getstate(), np.random.get_state()
        _set_states(self._states)
        try:
            with no_downloads(), contextlib.redirect_stdout(io.StringIO()):  # some games print
                return call_user_code(failure, call)
        finally:
            self._states = random.getstate(), np.random.get_state()
            _set_states(outside)


def _states_of(seed: int) -> tuple[Any, Any]:
    return random.Random(seed).getstate(), np.random.RandomState(seed).get_state()


def _set_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])


def _read_observation(sender: object, text: object, kind: object, player: int) -> Seen:
    """Return an observation of textarena as `Seen`. In some games for one player, a move has its fields in another
    order."""
    if not isinstance(sender, int) or not isinstance(kind, Enum):
        return Seen(player, str(text), ACTION)
    return Seen(sender, str(text).strip("\n"), kind.name)


def as_text(seen: list[Seen]) -> str:
    """Join the texts into one. If the first lines of several boards differ only in numbers, only the last of these
    boards is kept."""
    last = {_title(one): number for number, one in enumerate(seen) if one.kind == BOARD}
    kept = [one for number, one in enumerate(seen) if one.kind != BOARD or last[_title(one)] == number]
    texts = (one.text if one.sender < 0 else f"Player {one.sender}: {one.text}" for one in kept)
    return "\n\n".join(filter(None, texts))


def _title(seen: Seen) -> str:
    return re.sub(r"\d+", "0", seen.text.partition("\n")[0])


def load_game(name: str, config: Mapping[str, Any]) -> Game:
    """Return the game with the id `name`, made with its registered arguments and `config`. Raise UserError if the game
    is unknown or unsound, needs a remote model, or cannot be made on this machine."""
    with no_downloads():
        registry = _import("textarena.envs.registration").ENV_REGISTRY
        if name not in registry:
            known = sorted(one for one in registry if not one.endswith(("-raw", "-train")))
            raise UserError(f"textarena has no game `{name}`.{nearest(name, known)}")
        spec = registry[name]
        module, _, class_name = spec.entry_point.partition(":")
        kind = module.split(".")[-2]
        if kind in REMOTE:
            raise UserError(
                f"textarena:{name} asks a language model at a remote service for its answers, which slimrl does not do "
                "during training; take another game."
            )
        if kind in UNSOUND:
            raise UserError(f"textarena:{name} cannot be trained on: {UNSOUND[kind]}.")
        try:
            made = call_user_code(
                f"textarena:{name} cannot be made with config = {dict(config)}",
                lambda: vars(importlib.import_module(module))[class_name](**{**spec.kwargs, **config}),
            )
        except UserError as error:
            raise _explain(name, error) from error
    brackets = vars(_import("textarena.wrappers"))["ActionFormattingWrapper"]
    return Game(name, kind, made, brackets in (spec.default_wrappers or ()))


@contextlib.contextmanager
def no_downloads() -> Iterator[None]:
    """Context manager: prevent textarena from downloading word lists, which it tries to do when a game is imported or
    made. Word lists on this machine are still found."""
    nltk = _import("nltk")
    download = nltk.download
    nltk.download = lambda *args, **kwargs: False
    try:
        yield
    finally:
        nltk.download = download


def _import(module: str) -> Any:
    return require(module, "textarena", "an environment `textarena:NAME`")


def _explain(name: str, error: UserError) -> UserError:
    cause = error.__cause__
    if isinstance(cause, LookupError) and "NLTK" in str(cause):
        return UserError(
            f"textarena:{name} needs word lists of nltk, which are not on this machine, and slimrl loads nothing "
            f"unasked. Load them once: `{WORDS}`; without a network, copy the folder `nltk_data` from another machine "
            "and set NLTK_DATA to it."
        )
    return error


def _is_dictionary(value: object) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)) and len(value) > MANY:
        return all(isinstance(one, str) for one in value)
    return type(value).__name__ == "EnglishDictionary"
