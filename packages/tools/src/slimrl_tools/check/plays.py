"""Plays the episodes of a check: scripts, useless replies, and replays of some episodes under other conditions."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import TypeVar

from slimrl.environments.scripts import EXPERT
from slimrl.errors import RolloutError
from slimrl.io.user_code import call_user_code
from slimrl.types import Message, Task, Taskset
from slimrl_tools.check.hostile import GENERAL, NOTHING, replies_in_tags, tags_of
from slimrl_tools.check.messages import schema_fault, tools_of, wrong_calls
from slimrl_tools.check.trial import Kind, Played, Replies, Trial

T = TypeVar("T")
FEW = 2  # tasks on which many variants are played
REPEATS = 3  # times that an episode is played again
MAX_BREAKDOWNS = 3  # stop after this many episodes that hang or crash
HOSTILE_TURNS = 4  # repeating the same useless reply more often reveals nothing new


async def play_scripts(trial: Trial, tasks: Sequence[Task]) -> list[Played]:
    """Play all scripts on all tasks, but stop after `MAX_BREAKDOWNS` episodes that hang or crash."""
    found: list[Played] = []
    for name in call_user_code("its `scripts` failed", lambda: list(trial.taskset.scripts)):
        for task in tasks:
            if not _is_hopeless(found):
                found.append(await trial.play_script(name, task))
    return found


async def play_useless(trial: Trial, tasks: Sequence[Task], scripts: Sequence[Played]) -> list[Played]:
    """Play useless replies on a few tasks, from the start and after a script's first reply. The empty replies are
    first; if no episode with them starts, skip the other replies on this task. Stop after `MAX_BREAKDOWNS` episodes
    that hang or crash."""
    fewer = {"max_turns": min(HOSTILE_TURNS, trial.limits.max_turns)}
    short = replace(trial, limits=trial.limits.model_copy(update=fewer))
    found: list[Played] = []

    async def play(by: Trial, kind: Kind, task: Task, texts: Mapping[str, str], first: Replies = ()) -> None:
        for what, text in texts.items():
            if not _is_hopeless(found):
                found.append(await by.play_constant(kind, what, task, text, first))

    for task in spread(tasks, FEW):
        await play(trial, "nothing", task, NOTHING)
        if not (opening := openings_of(found).get(task.id)):
            continue
        in_tags = replies_in_tags(opening)
        await play(short, "garbage", task, {**GENERAL, **in_tags})
        if best := _best([one for one in scripts if len(one.rollout.turns) > 1], task, [EXPERT]):
            later = {f"{what} after a good reply": text for what, text in in_tags.items()}
            await play(short, "garbage", task, later, best.replies[:1])
        copies = {"a copy of the last message": opening[-1]["content"]}
        with suppress(RolloutError):  # if the episode cannot start, the episodes above record the reason
            copies["a copy of the prompt"] = await short.read(task)
        await play(short, "copy", task, copies)
    for opening in [*openings_of(found).values()][:1]:
        if (tools := tools_of(opening)) and not any(map(schema_fault, tools)):
            await play(short, "call", tasks[0], wrong_calls(tools))
    return found


def openings_of(played: Sequence[Played]) -> dict[str, Sequence[Message]]:
    """Return the opening messages by task id, from the episodes with empty replies. Tasks whose episode did not start
    are left out."""
    return {one.task.id: one.opening for one in played if one.kind == "nothing" and one.opening}


def choose_samples(played: Sequence[Played], tasks: Sequence[Task]) -> list[Played]:
    """Return up to two episodes that did not fail, for each of a few tasks. One was played by a script, preferably the
    expert. The other has a useless reply, preferably in the environment's own tags."""
    nonsense = [f"{begin} with nonsense" for opening in openings_of(played).values() for begin, _ in tags_of(opening)]
    liked: dict[Kind, list[str]] = {"script": [EXPERT], "garbage": nonsense}
    return [
        best
        for task in spread(tasks, FEW)
        for kind, names in liked.items()
        if (best := _best([one for one in played if one.kind == kind], task, names))
    ]


async def play_again(trial: Trial, samples: Sequence[Played]) -> list[list[Played]]:
    """Replay each sample `REPEATS` times."""
    return [[await trial.replay(one) for _ in range(REPEATS)] for one in samples]


async def play_beside(trial: Trial, alone: Sequence[Played]) -> list[tuple[Played, Played]]:
    """Replay every two episodes in `alone` at the same time. Return pairs: an episode, and its replay beside another
    episode."""
    found: list[tuple[Played, Played]] = []
    for pair in combinations(alone, 2):
        found += zip(pair, await asyncio.gather(*map(trial.replay, pair)), strict=True)
    return found


async def play_all(
    trial: Trial, samples: Sequence[Played], taskset: Taskset, change: Callable[[Task], Task] = lambda task: task
) -> list[Played]:
    """Replay each sample with the given `taskset`. `change` maps the task of a sample to the task to play."""
    return [await trial.replay(one, taskset, change(one.task)) for one in samples]


def spread(items: Sequence[T], num: int) -> list[T]:
    """Return `num` of the items, evenly spaced; all items if there are fewer.

    >>> spread(range(10), 3)
    [0, 3, 6]
    """
    return list(items) if len(items) <= num else [items[place * len(items) // num] for place in range(num)]


def _is_hopeless(played: Sequence[Played]) -> bool:
    """Return True if so many episodes hung or crashed that further episodes would only take time."""
    return sum(one.is_breakdown for one in played) >= MAX_BREAKDOWNS


def _best(played: Sequence[Played], task: Task, liked: Sequence[str]) -> Played | None:
    """Return the first episode on `task` that did not fail, preferably one whose script or reply is in `liked`. Return
    None if all episodes failed."""
    whole = [one for one in played if one.task.id == task.id and not one.rollout.failure and one.rollout.turns]
    return min(whole, key=lambda one: one.what not in liked, default=None)
