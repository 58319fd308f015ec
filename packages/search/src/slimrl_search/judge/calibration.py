"""Measures a judge's agreement with labelled answers: counts, agreement with its interval, and Cohen's kappa."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from slimrl.config.base import describe_faults
from slimrl.errors import RolloutError, UserError
from slimrl.io.loop_thread import gather_all
from slimrl.io.rows import file_rows
from slimrl.judges.judge import Judge
from slimrl.stats import Estimate, wilson

Reference = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A response with its label: True if the response is right. `kind` is the category of the response, if known."""

    question: str
    response: str
    references: Annotated[tuple[Reference, ...], Field(min_length=1)]
    label: bool
    kind: str = ""


ROW = TypeAdapter(Labelled)


def read_labelled(path: Path) -> list[Labelled]:
    """Return the labelled responses in a file. Each row has the fields of `Labelled`. Instead of `references`, a row
    may have `answer` and optionally `aliases`. Raises UserError, which names the row, if a field is missing."""
    rows = []
    for row, where in file_rows(path, "the file to calibrate on"):
        if isinstance(row, Mapping):
            row = {"references": [row.get("answer"), *(row.get("aliases") or ())], **row, "kind": row.get("kind") or ""}
        try:
            rows.append(ROW.validate_python(row))
        except ValidationError as error:
            raise UserError(f"{where}: {describe_faults(error)}") from error
    if not rows:
        raise UserError(f"{path} has no rows.")
    return rows


@dataclass(frozen=True, slots=True)
class Judged:
    """A labelled response with a judge's verdict. If the judge failed, `verdict` is None and `failure` is the
    reason."""

    labelled: Labelled
    verdict: bool | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of responses by verdict and label. `false_yes` counts the responses that are labelled wrong but judged
    right. `failed` counts the responses without a verdict; no other count includes them.

    >>> Confusion(true_yes=4, false_yes=1, false_no=0, true_no=5).agreement.mean
    0.9
    """

    true_yes: int
    false_yes: int
    false_no: int
    true_no: int
    failed: int = 0

    @property
    def num(self) -> int:
        """The number of responses with a verdict."""
        return self.true_yes + self.false_yes + self.false_no + self.true_no

    @property
    def agreement(self) -> Estimate:
        """The share of verdicts that equal the label, with Wilson's interval; nan without verdicts."""
        right = self.true_yes + self.true_no
        return wilson(right, self.num) if self.num else Estimate(math.nan, math.nan, math.nan, 0)

    @property
    def kappa(self) -> float:
        """Cohen's kappa (Cohen 1960), (p_o - p_e) / (1 - p_e); nan without verdicts or where p_e is 1. p_o is the
        observed agreement. p_e is the agreement by chance of two raters with the same frequencies of yes."""
        judge_yes, label_yes = self.true_yes + self.false_yes, self.true_yes + self.false_no
        by_chance = judge_yes * label_yes + (self.num - judge_yes) * (self.num - label_yes)  # p_e times num squared
        if by_chance == self.num**2:
            return math.nan
        return (self.num * (self.true_yes + self.true_no) - by_chance) / (self.num**2 - by_chance)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of calibrating one judge: its verdicts on all labelled responses, and the duration in seconds."""

    judge: str
    judged: tuple[Judged, ...]
    seconds: float

    @property
    def confusion(self) -> Confusion:
        """The counts over all responses."""
        pairs = [(one.verdict, one.labelled.label) for one in self.judged]
        return Confusion(
            true_yes=pairs.count((True, True)),
            false_yes=pairs.count((True, False)),
            false_no=pairs.count((False, True)),
            true_no=pairs.count((False, False)),
            failed=sum(verdict is None for verdict, _ in pairs),
        )

    @property
    def mistakes(self) -> dict[str, list[Judged]]:
        """The responses whose verdict is missing or differs from the label, for each type of mistake."""
        wrong = [one for one in self.judged if one.verdict != one.labelled.label]
        sorts = {"false_yes": True, "false_no": False, "no_verdict": None}
        return {sort: [one for one in wrong if one.verdict is verdict] for sort, verdict in sorts.items()}


def calibrate(
    name: str, judge: Judge, labelled: Sequence[Labelled], num_concurrent: int, on_done: Callable[[], None]
) -> Calibration:
    """Return the judge's verdicts on all responses. At most `num_concurrent` responses are judged at a time, and
    `on_done` is called after each verdict.

    Raises UserError if the judge raises it.
    """

    async def judge_one(one: Labelled) -> Judged:
        judged = await _judge_one(judge, one)
        on_done()
        return judged

    began = time.perf_counter()
    judged = asyncio.run(gather_all(*map(judge_one, labelled), at_once=num_concurrent))
    return Calibration(name, tuple(judged), time.perf_counter() - began)


async def _judge_one(judge: Judge, one: Labelled) -> Judged:
    try:
        return Judged(one, (await judge.judge(one.question, one.response, one.references)).correct)
    except RolloutError as error:
        return Judged(one, None, str(error))
