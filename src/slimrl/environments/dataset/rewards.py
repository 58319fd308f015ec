"""Rewards in a config: built-in scorers by name and the user's functions, with weights if there are several.

The scorers `exact`, `number`, `match` and `judge` compare the answer in a reply with the right answers of the row.

The names of a function's parameters decide how it is called. A function with the parameter `completions` has TRL's
signature: it receives lists with one entry per completion (`prompts`, `completions`, and the rows' columns), and
returns a list. Any other function takes one or more of `reply` (the last reply), `task` (a `slimrl.types.Task`) and
`given` (the answer in the reply, or None), and returns a number. Both kinds of functions may be async. Their values are
None where the reward does not apply. A function receives copies of its arguments, so it may change them.
"""

import asyncio
import copy
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Complex, Real
from typing import Any

from pydantic import FiniteFloat

from slimrl.environments.answers import read_number
from slimrl.errors import RolloutError, UserError, describe, nearest
from slimrl.io.settings import read_settings
from slimrl.io.user_code import load_named
from slimrl.judges.judge import Judge
from slimrl.judges.match import matches
from slimrl.types import Message, Metrics, Task

NAME = re.compile(r"[A-Za-z][\w.-]{0,59}", re.ASCII)  # a part of a metric's name
OWN = ("reply", "task", "given")
TRL = ("prompts", "completions")
JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished episode, which is the input of a reward.

    `prompt` is a text or messages, as in the row. `completion` holds all messages after the opening. `reply` is the
    policy's last message, and `given` the answer in that message, or None. A scorer may add to `metrics`.
    """

    task: Task
    prompt: str | list[Message]
    completion: list[Message]
    reply: str
    given: str | None
    question: str = ""
    references: Sequence[str] = ()
    metrics: Metrics = field(default_factory=dict)


Score = Callable[[Finished], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class RewardSettings:
    """The settings of one reward."""

    function: str
    weight: FiniteFloat = 1.0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Reward:
    """One reward. `score` computes its value on a finished episode, and `columns` are the columns that `score`
    needs."""

    name: str
    weight: float
    score: Score
    columns: tuple[str, ...] = ()
    scorer: str = ""
    is_async: bool = False

    async def value(self, finished: Finished) -> float | None:
        """Return a number, or None if the reward does not apply. Raise RolloutError if the function fails or returns
        anything else."""
        try:
            value = await self.score(finished)
        except (RolloutError, UserError):
            raise
        except Exception as error:
            raise RolloutError("reward_error", f"reward `{self.name}` failed: {describe(error)}") from error
        if value is None:
            return None
        try:
            is_complex = isinstance(value, Complex) and not isinstance(value, Real)
            if is_complex or isinstance(value, str | bytes | bytearray | memoryview):
                raise TypeError(type(value).__name__)  # a mistake, although Python could convert it to a float
            number = float(value)  # type: ignore[arg-type]  # also numbers of numpy, PyTorch and others
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise RolloutError("reward_error", f"reward `{self.name}` gave {value!r:.100}, no number") from error
        if not math.isfinite(number):
            raise RolloutError("nonfinite_reward", f"reward `{self.name}` gave {number}")
        return number


def exact(finished: Finished) -> float:
    """Return 1 if the answer equals a right answer. Extra spaces are ignored, and so is a leading `$` of the answer."""
    given = " ".join((finished.given or "").split())
    right = {" ".join(one.split()) for one in finished.references}
    return float(bool(given) and (given in right or given.removeprefix("$") in right))


def number(finished: Finished) -> float:
    """Return 1 if the answer is a number equal to a right answer, such as `1,000.0` to `1000`, or `1/2` to `0.5`."""
    given, right = read_number(finished.given or ""), map(read_number, finished.references)
    return float(given is not None and any(one is not None and given.equals(one) for one in right))


def match(finished: Finished) -> float:
    """Return 1 if the words of the answer match a right answer (`judges/match.py`)."""
    return float(bool(finished.given) and matches(finished.given or "", finished.references, finished.question))


SCORERS: dict[str, Callable[[Finished], float]] = {"exact": exact, "number": number, "match": match}


def read_rewards(given: object, loaded: dict[str, Any], judge: Callable[[], Judge]) -> list[Reward]:
    """Return the rewards that a config's `reward` names. Raise UserError if one is missing or cannot be called."""
    entries = given if isinstance(given, list) else [given]
    rewards = [_reward_of(entry, loaded, judge) for entry in entries]
    names = [reward.name for reward in rewards]
    if not rewards:
        raise UserError("dataset: `reward` is an empty list; leave it out to compare answers exactly.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"dataset: two rewards are called `{twice[0]}`; give one another `name`.")
    return rewards


async def grade(rewards: Sequence[Reward], finished: Finished) -> tuple[float, Metrics]:
    """Return the weighted sum of the rewards that apply, as in TRL, and each of these rewards as a metric. Raise
    RolloutError if no reward applies."""
    found = await asyncio.gather(*(reward.value(finished) for reward in rewards))
    values = dict(zip([reward.name for reward in rewards], found, strict=True))
    if all(value is None for value in found):
        raise RolloutError("no_reward", f"none of the rewards {', '.join(values)} applies to task {finished.task.id}")
    total = sum(reward.weight * (values[reward.name] or 0.0) for reward in rewards)
    metrics = {f"reward_{name}": value for name, value in values.items() if value is not None}
    return total, metrics


def _reward_of(entry: object, loaded: dict[str, Any], judge: Callable[[], Judge]) -> Reward:
    if not isinstance(entry, (str, Mapping)):
        raise UserError(
            f"dataset: a reward is a name, a function's `file.py:name`, or a table with `function`, not {entry!r:.80}."
        )
    table: Mapping[str, Any] = {"function": entry} if isinstance(entry, str) else entry
    if "function" not in table:
        raise UserError(f"dataset: a reward needs a `function`, and this one has {sorted(table)}.")
    settings = read_settings(RewardSettings, table, "reward")
    where = settings.function
    name = settings.name or where.rpartition(":")[2]
    if not NAME.fullmatch(name):
        raise UserError(f"dataset: a reward cannot be called {name!r:.80}; take letters, digits, `_`, `-` and `.`.")
    is_builtin = where in SCORERS or where == JUDGE
    if not is_builtin and ":" not in where:
        raise UserError(
            f"dataset: there is no reward `{where}`.{nearest(where, [*SCORERS, JUDGE])} Your own is named as "
            "`path/to/file.py:function` or `package.module:function`."
        )
    function: Any = None if is_builtin else load_named(where, "reward", loaded)
    if not is_builtin and not callable(function):
        raise UserError(f"reward `{where}` is not a function, but the {type(function).__name__} {function!r:.80}.")
    if is_builtin:
        return Reward(name, settings.weight, _call_scorer(where, judge), scorer=where)
    score, columns = _caller(function, where)
    is_async = inspect.iscoroutinefunction(function)
    return Reward(name, settings.weight, score, columns, is_async=is_async)


def _call_scorer(name: str, judge: Callable[[], Judge]) -> Score:
    async def score(finished: Finished) -> float:
        if name != JUDGE:
            return SCORERS[name](finished)
        verdict = await judge().judge(finished.question, finished.given or "", finished.references)
        finished.metrics.update(verdict.metrics)
        return float(verdict.correct)

    return score


def _caller(function: Callable[..., Any], where: str) -> tuple[Score, tuple[str, ...]]:
    """Return an adapter that calls the function on a finished episode, and the columns that it needs."""
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = [p.name for p in parameters if p.name in names and p.default is p.empty]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        raise UserError(f"reward `{where}` has parameters without names (`/`), and is called with keywords.")

    async def score_trl(finished: Finished) -> object:
        columns = _trl_columns(copy.deepcopy(finished))
        given = await _result(function(**{name: columns[name] for name in columns if takes_all or name in names}))
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise TypeError(f"it gave a {type(given).__name__}, not a list with a number for each completion")
        if len(values := list(given)) != 1:
            raise TypeError(f"it gave {len(values)} values for 1 completion")
        return values[0]

    async def score_own(finished: Finished) -> object:
        own = copy.deepcopy(finished)
        given = {"reply": own.reply, "task": own.task, "given": own.given}
        return await _result(function(**{name: given[name] for name in OWN if name in names}))

    if "completions" in names:
        return score_trl, tuple(name for name in required if name not in TRL)
    unknown = [name for name in required if name not in OWN]
    if unknown or not set(names) & set(OWN):
        raise UserError(
            f"reward `{where}` takes `{', '.join(names)}`. It may take `reply`, `task` (columns are `task.data[...]`) "
            "and `given`, and return a number; or, as in TRL, `prompts`, `completions` and columns by their names, and "
            "return a list."
        )
    return score_own, ()


def _trl_columns(finished: Finished) -> dict[str, list[Any]]:
    """Return the arguments of a reward function with TRL's signature. The completion is a text if the prompt is a text
    and the episode had one turn; otherwise it is a list of messages."""
    columns = {name: [value] for name, value in finished.task.data.items() if name not in ("prompt", *TRL)}
    is_text = isinstance(finished.prompt, str) and len(finished.completion) == 1
    return {
        **columns,
        "prompts": [finished.prompt],
        "completions": [finished.reply if is_text else finished.completion],
    }


async def _result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
