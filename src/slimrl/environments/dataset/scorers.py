"""Scorers that a reward may name: `exact`, `number`, `match`, and `judge`. Each compares the answer in a reply with the
right answers of the row."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from slimrl.environments.numbers import read_number
from slimrl.judges.judge import Judge
from slimrl.judges.word_match import matches
from slimrl.types import Message, Metrics, Task


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished episode, as a reward receives it.

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


Scorer = Callable[[Finished], Awaitable[float]]


async def exact(finished: Finished) -> float:
    """Return 1 if the answer equals a right answer. Extra spaces are ignored, and so is a leading `$` of the answer."""
    given = " ".join((finished.given or "").split())
    right = {" ".join(one.split()) for one in finished.references}
    return float(bool(given) and (given in right or given.removeprefix("$") in right))


async def number(finished: Finished) -> float:
    """Return 1 if the answer is a number equal to a right answer: `1,000.0` is `1000`, and `1/2` is `0.5`."""
    given, right = read_number(finished.given or ""), map(read_number, finished.references)
    return float(given is not None and any(one is not None and given.equals(one) for one in right))


async def match(finished: Finished) -> float:
    """Return 1 if the words of the answer match a right answer (`judges/word_match.py`)."""
    return float(bool(finished.given) and matches(finished.given or "", finished.references, finished.question))


def judge_scorer(judge: Callable[[], Judge]) -> Scorer:
    """Return a scorer that asks a judge."""

    async def score(finished: Finished) -> float:
        verdict = await judge().judge(finished.question, finished.given or "", finished.references)
        finished.metrics.update(verdict.metrics)
        return float(verdict.correct)

    return score


SCORERS: dict[str, Scorer] = {"exact": exact, "number": number, "match": match}
JUDGE = "judge"
