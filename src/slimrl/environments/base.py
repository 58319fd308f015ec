"""What an environment is, and how one is found by its `id`.

A `Taskset` knows the tasks of both splits and makes one single-use `Environment` per episode. The environment speaks in
chat messages and knows nothing of tokens, models or training; see `environments/reverse_text.py` for a whole one.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from slimrl.environments.settings import check_args
from slimrl.errors import UserError, nearest
from slimrl.models.text import is_writable
from slimrl.types import Message, Rollout, Split, Task

# Built-in environments: id -> module:class, imported only when asked for.
BUILTIN = {
    "alphabet-sort": "slimrl.environments.alphabet_sort:AlphabetSort",
    "matching-game": "slimrl.environments.matching_game:MatchingTaskset",
    "reverse-text": "slimrl.environments.reverse_text:ReverseText",
    "wiki-search": "slimrl.environments.wiki_search:WikiSearch",
    "wordle": "slimrl.environments.wordle:Wordle",
}


SUCCESS = 1.0 - 1e-9
"""An episode of this reward earned all there is: a sum of turns' rewards may be rounded."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The environment's answer to one reply of the policy.

    While `done` is false, `messages` are what the policy reads next. `reward` is what the reply earned: an environment
    that judges episodes as a whole gives all of it when `done`. An episode's reward is the sum over its turns.
    A message with an `excerpt` (see `types.Message`) is cut to so many of the policy's tokens before it is read.
    `metrics` are named numbers so far; those of the last turn are averaged over rollouts (logged as `env/<name>`).
    """

    done: bool
    messages: Sequence[Message] = ()
    reward: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


class Environment(Protocol):
    """One episode. Used once, never shared."""

    async def start(self) -> list[Message]:
        """The opening messages, ending with one the policy is to answer."""

    async def step(self, reply: str) -> Turn:
        """React to the policy's reply."""


@runtime_checkable
class Closing(Protocol):
    """An environment that holds something, such as a process, which must be given back however the episode ends."""

    async def close(self) -> None:
        """Called once, when the episode is over: done, out of turns, failed or cancelled."""


class Taskset(Protocol):
    """The tasks of an environment. Constructed with the `args` of its config section as keywords."""

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split, the same ones in the same order every time; the splits share none. One without a
        `validation` split returns none for it."""

    def environment(self, task: Task) -> Environment:
        """A fresh episode on the task."""


@runtime_checkable
class Expert(Protocol):
    """A taskset that can also show how its tasks are done; supervised warm-up learns from it."""

    def demonstrate(self, task: Task) -> list[Message]:
        """A whole conversation in which the assistant's turns are right."""


@runtime_checkable
class RandomPlayer(Protocol):
    """A taskset that can also be played at random; evaluation compares with that."""

    def play_at_random(self, task: Task, seed: int) -> list[Message]:
        """A whole conversation in which the assistant calls tools, and answers, at random."""


@runtime_checkable
class Cast(Protocol):
    """A taskset that can also be played by scripts of its own, each with a name; evaluation compares with these."""

    def play_as(self, name: str, task: Task, seed: int) -> list[Message]:
        """A whole conversation with that script as the assistant. Raises UserError for a name that is none of them."""


@runtime_checkable
class Explainer(Protocol):
    """A taskset that can also tell in what way an episode failed; evaluation counts that."""

    def what_went_wrong(self, rollout: Rollout) -> str | None:
        """A kind of failure, in a few words that name no detail, of a finished episode that did not earn everything.
        Empty if there is nothing more to say than evaluation does; None if it is no failure."""


@runtime_checkable
class Seated(Protocol):
    """A taskset whose tasks the policy can play against itself, in all roles at once; see `environments/seats.py`."""

    @property
    def roles(self) -> Sequence[str]:
        """Their names; none if its tasks are played by one alone, as `environment` gives them."""

    def table(self, task: Task) -> Sequence[Environment]:
        """Fresh episodes on the task, one for each role in that order, that wait for one another."""


@runtime_checkable
class Resting(Protocol):
    """A taskset that holds memory of a device which the policy may need for training, such as a judge's."""

    def rest(self) -> None:
        """Let go of it until the next episode. Called between steps, when no episode is being played."""


def load_taskset(env_id: str, args: Mapping[str, Any]) -> Taskset:
    """The taskset of a built-in id (`-` and `_` are the same), of `path/to/file.py:ClassName`, or of
    `package.module:ClassName`. Raises UserError if it is not there or does not take the args."""
    constructor = _find(env_id)
    if not callable(constructor):
        raise UserError(
            f"environment `{env_id}` is not a class, but the {type(constructor).__name__} {constructor!r:.80}."
        )
    signature = inspect.signature(constructor)
    try:
        signature.bind(**args)
    except TypeError as error:
        known = [name for name in signature.parameters if name not in ("args", "kwargs")]
        unknown = next((name for name in args if name not in known), "")
        raise UserError(f"environment `{env_id}`: {error}.{nearest(unknown, known)}") from error
    check_args(signature, args, f"environment `{env_id}`")
    try:
        taskset = constructor(**args)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # whatever it raises, the class or its args need mending
        given = ", ".join(f"{name} = {value!r:.40}" for name, value in args.items()) or "no args"
        raise UserError(f"environment `{env_id}` failed with {given}: {type(error).__name__}: {error}") from error
    missing = [name for name in ("tasks", "environment") if not callable(getattr(taskset, name, None))]
    if missing:
        raise UserError(
            f"environment `{env_id}`: {type(taskset).__name__} lacks {' and '.join(f'`{m}()`' for m in missing)}; see "
            "`Taskset` in slimrl/environments/base.py for what it must have."
        )
    return cast(Taskset, taskset)


def tasks_of(taskset: Taskset, split: Split) -> list[Task]:
    """The taskset's tasks, made sure to be some: it is other people's code. Raises UserError if it fails."""
    name = f"{type(taskset).__name__}.tasks({split!r})"
    tasks: list[object] = _called(name, lambda: list(taskset.tasks(split)))
    seen: set[str] = set()
    for number, task in enumerate(tasks):
        if not isinstance(task, Task) or not isinstance(task.id, str):
            raise UserError(
                f"{name} must give `slimrl.types.Task`s with a text as id, but number {number} is {task!r:.80}"
            )
        if task.id in seen:
            raise UserError(f"{name} gives two tasks with the id `{task.id}`; an id must be unique within its split.")
        seen.add(task.id)
    return cast(list[Task], tasks)


def demonstration_of(taskset: Taskset, task: Task) -> list[Message]:
    """The expert's conversation on a task. Raises UserError if the taskset has no expert, or it fails."""
    name = type(taskset).__name__
    if not isinstance(taskset, Expert):
        raise UserError(
            f"{name} has no `demonstrate()`, so nobody can show how its tasks are done. Add the method, or train on a "
            "file: `--data.type file --data.path chats.jsonl`."
        )
    return _conversation(f"{name}.demonstrate({task.id})", lambda: list(taskset.demonstrate(task)))


def random_conversation(taskset: Taskset, task: Task, seed: int) -> list[Message]:
    """A conversation on a task with somebody who plays at random. Raises UserError if the taskset has no such player,
    or it fails."""
    name = type(taskset).__name__
    if not isinstance(taskset, RandomPlayer):
        raise UserError(f"{name} has no `play_at_random()`: take `random` from the baselines, or add the method.")
    return _conversation(f"{name}.play_at_random({task.id})", lambda: list(taskset.play_at_random(task, seed)))


def script_conversation(taskset: Taskset, script: str, task: Task, seed: int) -> list[Message]:
    """A conversation on a task with one of the taskset's own scripts. Raises UserError if it has no such script, or it
    fails."""
    name = type(taskset).__name__
    if not isinstance(taskset, Cast):
        raise UserError(f"{name} has no scripts: take `script:{script}` from the baselines, or add `play_as()`.")
    return _conversation(f"{name}.play_as({script!r}, {task.id})", lambda: list(taskset.play_as(script, task, seed)))


def _conversation(name: str, call: Callable[[], list[Any]]) -> list[Message]:
    messages: list[object] = _called(name, call)
    for message in messages:
        if not is_message(message):
            raise UserError(f"{name}: a message needs a role and a text as content, not {message!r:.200}")
    return cast(list[Message], messages)


def is_message(value: object) -> bool:
    """Whether it is a role and a text, as templates need. Half of a surrogate pair is no text to a tokenizer."""
    fields = value if isinstance(value, dict) else {}
    texts = fields.get("role"), fields.get("content")
    return all(isinstance(text, str) and is_writable(text) for text in texts)


def _called(name: str, call: Callable[[], list[Any]]) -> list[Any]:
    """Call the user's code; whatever it raises, it is that code or its args that need mending."""
    try:
        return call()
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{name} failed: {type(error).__name__}: {error}") from error


def _find(env_id: str) -> Any:
    location = BUILTIN.get(env_id.replace("_", "-"), env_id)
    module_name, colon, class_name = location.rpartition(":")
    if not colon or not module_name:
        raise UserError(
            f"there is no environment `{env_id}`.{nearest(env_id, BUILTIN)} Your own is named as "
            "`path/to/file.py:ClassName` or `package.module:ClassName`."
        )
    module = (
        _module_from_file(Path(module_name)) if module_name.endswith(".py") else _module_by_name(module_name, env_id)
    )
    if class_name not in vars(module):
        classes = [name for name, value in vars(module).items() if inspect.isclass(value)]
        raise UserError(f"environment `{env_id}`: {module_name} has no `{class_name}`.{nearest(class_name, classes)}")
    return vars(module)[class_name]


def _module_by_name(name: str, env_id: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f"environment `{env_id}`: {error}; is the package installed in this environment?") from error
    except (Exception, SystemExit) as error:  # whatever a user's module raises, it is the module that needs mending
        raise UserError(f"environment `{env_id}`: {name} failed to load: {type(error).__name__}: {error}") from error


def _module_from_file(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"environment file {path} does not exist (looked in {path.absolute().parent}).")
    name = f"slimrl_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's file raises, it is the file that needs mending
        raise UserError(f"environment file {path} failed to load: {type(error).__name__}: {error}") from error
    return module
