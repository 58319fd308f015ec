"""Finds a game of the package textarena by its id, and refuses those that cannot be played. Knows nothing of episodes.

Games are made without textarena's wrappers, except that the bracket wrapper of an id is kept as `adds_brackets`:
`TicTacToe-v0` reads the reply `4` as `[4]`, and `TicTacToe-v0-raw` does not.
"""

import copy
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from slimrl.environments.find import call_user_code
from slimrl.errors import UserError, install_hint, nearest, require

# They ask a model at a remote service for every answer, or at the end for a verdict.
REMOTE = ("Debate", "GuessWho", "ScenarioPlanning", "TwentyQuestions")
WORDS = "python -m nltk.downloader words averaged_perceptron_tagger_eng"
MANY = 1000  # a list of more texts than this is a dictionary, which no game changes


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A game that can be copied and played. `kind` is its name without a version, such as `TicTacToe`."""

    name: str
    kind: str
    adds_brackets: bool
    model: Any
    shared: tuple[object, ...] = field(repr=False)

    def copy_game(self, game: Any) -> Any:
        """A copy of the game that has all of its own but the dictionaries."""
        return copy.deepcopy(game, {id(one): one for one in self.shared})


def load_game(name: str, config: Mapping[str, Any]) -> Blueprint:
    """The game with this id, made with its own arguments and `config`. Raises UserError if it cannot be made
    here."""
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
        try:
            made = call_user_code(
                f"textarena:{name} cannot be made with config = {dict(config)}",
                lambda: vars(importlib.import_module(module))[class_name](**{**spec.kwargs, **config}),
            )
        except UserError as error:
            raise _explain(name, error) from error
    brackets = vars(_import("textarena.wrappers"))["ActionFormattingWrapper"]
    shared = tuple(value for value in vars(made).values() if _is_dictionary(value))
    return Blueprint(name, kind, brackets in (spec.default_wrappers or ()), made, shared)


@contextmanager
def no_downloads() -> Iterator[None]:
    """Keeps textarena from loading word lists from the internet, which it tries at the import of a game and again for
    each one made. Lists that are there already are found without it."""
    nltk: Any = _import("nltk")
    download = nltk.download
    nltk.download = lambda *args, **kwargs: False
    try:
        yield
    finally:
        nltk.download = download


def _import(module: str) -> ModuleType:
    found: ModuleType = require(module, "textarena", "an environment `textarena:NAME`")
    return found


def _explain(name: str, error: UserError) -> UserError:
    """The error with a remedy, where one is known."""
    cause = error.__cause__
    if isinstance(cause, LookupError) and "NLTK" in str(cause):
        return UserError(
            f"textarena:{name} needs word lists of nltk, which are not on this machine, and slimrl loads nothing "
            f"unasked. Load them once: `{WORDS}`; without a network, copy the folder `nltk_data` from another machine "
            "and set NLTK_DATA to it."
        )
    if isinstance(cause, ModuleNotFoundError) and str(cause.name).startswith("textarena."):
        return UserError(f"textarena:{name} is registered, but its code is not in the package ({cause}).")
    if isinstance(cause, ModuleNotFoundError):
        return UserError(f"{error} Besides {install_hint('textarena')} it needs this package.")
    if isinstance(cause, SyntaxError):
        return UserError(f"{error}. Its code is written for a later Python, 3.12 at least.")
    return error


def _is_dictionary(value: object) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)) and len(value) > MANY:
        return all(isinstance(one, str) for one in value)
    return type(value).__name__ == "EnglishDictionary"
