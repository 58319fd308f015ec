"""Counts failed episodes by kind, and shows examples for people to read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slimrl.environments.base import SUCCESS
from slimrl.environments.find import failure_kind_of
from slimrl.eval.evaluate import HeldOutTask
from slimrl.types import Rollout, StopReason

MAX_CHARS = 6000  # maximum length of a message: longer texts are too long for readers
STOPPED = {StopReason.CONTEXT_FULL: "ran out of context", StopReason.MAX_TURNS: "ran out of turns"}


@dataclass(frozen=True, slots=True)
class FailureKind:
    """A kind of failure with its episodes, in the order of their tasks."""

    name: str
    cases: tuple[tuple[HeldOutTask, Rollout], ...]

    @property
    def num(self) -> int:
        return len(self.cases)


def kind_of(asked: HeldOutTask, rollout: Rollout) -> str:
    """Return the kind of failure of an episode. Return an empty text if the episode earned the full reward, or if the
    taskset does not count the episode as a failure (`Taskset.failure_kind`)."""
    if rollout.failure:
        return f"dropped: {rollout.failure}"
    if rollout.reward >= SUCCESS:
        return ""
    own = replace(rollout, task_id=asked.task.id, task_data=asked.task.data)  # a file has shortened data
    kind = failure_kind_of(asked.taskset, own)
    return "" if kind is None else kind or STOPPED.get(rollout.stop_reason, "wrong")


def failures_by_kind(tasks: Sequence[HeldOutTask], rollouts: Sequence[Rollout]) -> tuple[FailureKind, ...]:
    """Return the kinds of failure with their episodes, the most frequent first."""
    found: dict[str, list[tuple[HeldOutTask, Rollout]]] = {}
    for asked, rollout in zip(tasks, rollouts, strict=True):
        if kind := kind_of(asked, rollout):
            found.setdefault(kind, []).append((asked, rollout))
    kinds = [FailureKind(name, tuple(cases)) for name, cases in found.items()]
    return tuple(sorted(kinds, key=lambda kind: (-kind.num, kind.name)))


def failures_markdown(title: str, kinds: Sequence[FailureKind], num: int, num_examples: int) -> str:
    """Return a section in Markdown: the number of failures of each kind among `num` episodes, and up to `num_examples`
    conversations of each kind."""
    lines = [f"## {title}", "", f"{sum(kind.num for kind in kinds)} of {num} episodes failed.", ""]
    lines += ["| kind | episodes |", "|---|---|", *(f"| {kind.name} | {kind.num} |" for kind in kinds), ""]
    for kind in kinds:
        lines += [f"### {kind.name}, {kind.num}", ""]
        for asked, rollout in kind.cases[:num_examples]:
            lines += _case(asked, rollout)
    return "\n".join(lines)


def _case(asked: HeldOutTask, rollout: Rollout) -> Iterator[str]:
    yield from (f"#### {asked.id}", "")
    if answer := asked.task.data.get("answer"):
        yield from (f"The answer is: {answer}", "")
    shown = ", ".join(f"{name} {value:g}" for name, value in sorted(rollout.metrics.items()))
    yield from (f"Dropped; {shown}." if rollout.failure else f"Reward {rollout.reward:g}; {shown}.", "")
    if rollout.failure:
        yield from (f"{rollout.failure}: {rollout.failure_detail}", "")
    for message in rollout.messages:
        content = message["content"]
        shown = content if len(content) <= MAX_CHARS else f"{content[:MAX_CHARS]} [...]"
        # Indented text is shown unchanged, with all its marks of Markdown.
        yield from (f"**{message['role']}**", "", *(f"    {line}" for line in shown.split("\n")), "")
