"""Plays the episodes of a check: scripts, useless replies, and a sample of both again under other conditions."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeVar

from slimrl.environments.find import call_user_code
from slimrl.environments.scripts import EXPERT
from slimrl.errors import RolloutError
from slimrl.monitor.findings import Finding
from slimrl.types import Message, Task, Taskset
from slimrl_tools.check import messages
from slimrl_tools.check.hostile import GENERAL, NOTHING, replies_in_tags, tags_of
from slimrl_tools.check.subjects import TOOLS
from slimrl_tools.check.trial import Played, Replies, Trial

T = TypeVar("T")
FEW = 2  # tasks for tests in many variants
REPEATS = 3  # times that an episode is played again
MAX_BREAKDOWNS = 3  # no more episodes are tried after this many breakdowns
HOSTILE_TURNS = 4  # repeating the same useless reply more often reveals nothing new


@dataclass(slots=True)
class Hostile:
    """Episodes of replies that should earn nothing: empty, senseless, or copied from the prompt; with the opening
    messages of these episodes and the findings on their tools."""

    nothing: list[Played] = field(default_factory=list)
    garbage: list[Played] = field(default_factory=list)
    copies: list[Played] = field(default_factory=list)
    openings: list[Sequence[Message]] = field(default_factory=list)
    tools: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sample:
    """A task, and an episode on it whose replies are played again."""

    task: Task
    played: Played


async def play_scripts(trial: Trial, tasks: Sequence[Task]) -> list[Played]:
    """Play all scripts on all tasks, or fewer after several breakdowns."""
    found: list[Played] = []
    for name in call_user_code("its `scripts` failed", lambda: list(trial.taskset.scripts)):
        for task in tasks:
            if num_breakdowns(found) < MAX_BREAKDOWNS:
                found.append(await trial.play_script(name, task))
    return found


async def play_hostile(trial: Trial, tasks: Sequence[Task], scripts: Sequence[Played]) -> Hostile:
    """Play useless replies on a few tasks, from the start and after a script's first reply. Where an episode does not
    start, play only the empty replies."""
    short = replace(trial, limits=replace(trial.limits, max_turns=min(HOSTILE_TURNS, trial.limits.max_turns)))
    found = Hostile()
    for task in spread(tasks, FEW):
        await _play_each(trial, task, NOTHING, found.nothing)
        if not (opening := found.nothing[-1].opening):
            continue
        found.openings.append(opening)
        in_tags = replies_in_tags(opening)
        await _play_each(short, task, {**GENERAL, **in_tags}, found.garbage)
        if first := _first_reply(scripts, task):
            later = {f"{what} after a good reply": text for what, text in in_tags.items()}
            await _play_each(short, task, later, found.garbage, first)
        copies = {"a copy of the last message": opening[-1]["content"]}
        with suppress(RolloutError):  # the episodes above record the reason
            copies["a copy of the prompt"] = await short.read(task)
        await _play_each(short, task, copies, found.copies)
    if found.openings and (tools := messages.tools_of(found.openings[0])):
        found.tools.append(await _try_tools(short, tasks[0], tools))
    return found


async def _play_each(
    trial: Trial, task: Task, texts: Mapping[str, str], found: list[Played], first: Replies = ()
) -> None:
    """Append an episode with each text as the reply, until several episodes have broken down."""
    for what, text in texts.items():
        if num_breakdowns(found) < MAX_BREAKDOWNS:
            found.append(await trial.play_constant(what, task, text, first))


def num_breakdowns(played: Sequence[Played]) -> int:
    """Return the number of episodes that hung or ended their process. Each of them takes long."""
    return sum(one.rollout.failure in ("timeout", "environment_died") for one in played)


async def _try_tools(trial: Trial, task: Task, tools: Sequence[object]) -> Finding:
    if fault := next(filter(None, map(messages.schema_fault, tools)), ""):
        return TOOLS.problem(f"the schema of a tool is wrong: {fault}", messages.SCHEMA_REMEDY)
    calls = messages.wrong_calls(tools)
    played = {what: (await trial.play_constant(what, task, call)).rollout for what, call in calls.items()}
    return messages.calls_finding(tools, played)


def choose_samples(scripts: Sequence[Played], hostile: Hostile, tasks: Sequence[Task]) -> list[Sample]:
    """Choose episodes without a failure on each of a few tasks: one of a script, preferably the expert's, and one of a
    useless reply, preferably in the environment's own tags."""
    nonsense = [f"{begin} with nonsense" for opening in hostile.openings for begin, _ in tags_of(opening)]
    return [
        Sample(task, best)
        for task in spread(tasks, FEW)
        for played, liked in ((scripts, [EXPERT]), (hostile.garbage, nonsense))
        if (best := _best(played, task, liked))
    ]


async def play_again(trial: Trial, samples: Sequence[Sample]) -> list[list[Played]]:
    """Play each sample several times."""
    return [[await trial.replay(one.played, one.task) for _ in range(REPEATS)] for one in samples]


async def play_beside(trial: Trial, samples: Sequence[Sample], alone: Sequence[Played]) -> list[tuple[Played, Played]]:
    """Play the samples in pairs, both at the same time; return each sample's episode alone with its episode beside
    another."""
    found = []
    for one, other in combinations(zip(samples, alone, strict=True), 2):
        both = await trial.play_together(*((sample.task, sample.played) for sample, _ in (one, other)))
        found += [(one[1], both[0]), (other[1], both[1])]
    return found


async def play_in(trial: Trial, samples: Sequence[Sample], taskset: Taskset) -> list[Played]:
    """Play each sample in another taskset."""
    return [await trial.replay(one.played, one.task, taskset) for one in samples]


def spread(items: Sequence[T], num: int) -> list[T]:
    """Return `num` of the items, evenly spaced; all items if there are fewer.

    >>> spread(range(10), 3)
    [0, 3, 6]
    """
    return list(items) if len(items) <= num else [items[place * len(items) // num] for place in range(num)]


def _first_reply(scripts: Sequence[Played], task: Task) -> Replies:
    """Return the first reply of a script's episode on the task, preferably the expert's; empty unless the episode has a
    further reply."""
    best = _best([one for one in scripts if len(one.rollout.turns) > 1], task, [EXPERT])
    return best.replies[:1] if best else ()


def _best(played: Sequence[Played], task: Task, liked: Sequence[str]) -> Played | None:
    """Return the first episode on the task without a failure, preferably one that is `liked`; None without one."""
    whole = [one for one in played if one.rollout.task_id == task.id and not one.rollout.failure and one.rollout.turns]
    return min(whole, key=lambda one: one.what not in liked, default=None)
