"""Scorers that a reward may name: `exact`, `number`, `match`, and `judge`. Each compares the answer that was read in a
reply with the right answers of the row."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from slimrl.judges.judge import Judge
from slimrl.judges.word_match import matches
from slimrl.types import Message, Metrics, Task

NUMBER = re.compile(r"[$€£]?([-+]?)[$€£]?(\d+|\d{1,3}(?:,\d{3})+)(\.\d+)?(?:\s*/\s*(\d+))?(%?)\.?", re.ASCII)
MAX_DIGITS = 60


@dataclass(frozen=True, slots=True)
class Finished:
    """An episode that is over, as a reward sees it.

    `prompt` is as the row has it, `completion` all messages behind the opening, `reply` the last one of the policy, and
    `given` the answer that was read in it, or None. A scorer may add to `metrics`.
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
    """1 if the answer is one of the right ones, but for spaces."""
    given = " ".join((finished.given or "").split())
    return float(bool(given) and any(given == " ".join(one.split()) for one in finished.references))


async def number(finished: Finished) -> float:
    """1 if the answer is a number, and equal to a right one: `1,000.0` is `1000`, and `1/2` is `0.5`."""
    given = number_of(finished.given or "")
    return float(given is not None and any(given == number_of(one) for one in finished.references))


async def match(finished: Finished) -> float:
    """1 if the answer says a right one in words (`judges/word_match.py`)."""
    return float(bool(finished.given) and matches(finished.given or "", finished.references, finished.question))


def judge_scorer(judge: Callable[[], Judge]) -> Scorer:
    """A scorer that asks a judge."""

    async def score(finished: Finished) -> float:
        verdict = await judge().judge(finished.question, finished.given or "", finished.references)
        finished.metrics.update(verdict.metrics)
        return float(verdict.correct)

    return score


SCORERS: dict[str, Scorer] = {"exact": exact, "number": number, "match": match}
JUDGE = "judge"


def number_of(text: str) -> Any:
    """The number that a text is, exactly; None if it is anything else. A per cent is a number with its sign.

    >>> number_of("1,000.50") == number_of("2001/2"), number_of("6 or 7"), number_of("50%")
    (True, None, (Fraction(50, 1), '%'))
    """
    found = NUMBER.fullmatch(text.strip()) if len(text) <= MAX_DIGITS else None
    if found is None or (found[4] and (found[3] or not int(found[4]))):
        return None
    value = Fraction(f"{found[1]}{found[2].replace(',', '')}{found[3] or ''}") / int(found[4] or 1)
    return (value, found[5]) if found[5] else value
