"""How far a judge agrees with labels: counts, agreement, and Cohen's kappa with intervals. Knows nothing of files."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slimrl.errors import RolloutError
from slimrl.judges.judge import Judge
from slimrl.judges.labelled import Labelled
from slimrl.stats import NUM_RESAMPLES, Estimate, wilson


@dataclass(frozen=True, slots=True)
class Judged:
    """A labelled response and what the judge said; `failure` is why it said nothing."""

    labelled: Labelled
    verdict: bool | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often the judge said what of what was labelled so. A failure is no verdict: it is in none of the other
    counts."""

    true_yes: int
    false_yes: int
    false_no: int
    true_no: int
    failed: int = 0

    @property
    def num(self) -> int:
        """Responses with a verdict."""
        return self.true_yes + self.false_yes + self.false_no + self.true_no

    @property
    def agreement(self) -> Estimate:
        """The share of verdicts that are the label; nan without verdicts."""
        right = self.true_yes + self.true_no
        return wilson(right, self.num) if self.num else Estimate(math.nan, math.nan, math.nan, 0)

    @property
    def kappa(self) -> Estimate:
        """Agreement beyond chance, with the percentile bootstrap's interval over the responses; nan where judge and
        labels leave nothing to chance, or there is no verdict, and without an interval where all agree."""
        counts = np.array([self.true_yes, self.false_yes, self.false_no, self.true_no], dtype=np.float64)
        value = float(cohens_kappa(counts[None])[0])
        if math.isnan(value):
            return Estimate(value, value, value, self.num)
        # To draw responses with replacement is to draw these four counts from a multinomial distribution.
        rng = np.random.default_rng(0)
        resampled = cohens_kappa(rng.multinomial(self.num, counts / self.num, size=NUM_RESAMPLES).astype(np.float64))
        low, high = np.nanquantile(resampled, [0.025, 0.975])
        if high - low < 1e-9:  # judge and labels agree everywhere, and so does every resample
            low = high = math.nan
        return Estimate(value, float(low), float(high), self.num)


def cohens_kappa(counts_B4: np.ndarray) -> np.ndarray:
    """(p_o - p_e) / (1 - p_e) of rows of (both yes, only the judge, only the label, both no): p_o is the agreement, p_e
    what two that say yes as often as these would reach by chance (Cohen 1960). nan where p_e is 1.

    >>> cohens_kappa(np.array([[20.0, 5.0, 10.0, 15.0]])).round(6).tolist()
    [0.4]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        p = counts_B4 / counts_B4.sum(axis=1, keepdims=True)
        judge_yes, label_yes = p[:, 0] + p[:, 1], p[:, 0] + p[:, 2]
        p_o, p_e = p[:, 0] + p[:, 3], judge_yes * label_yes + (1 - judge_yes) * (1 - label_yes)
        return np.where(p_e < 1, (p_o - p_e) / (1 - p_e), np.nan)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A judge's verdicts on all labelled responses, and the seconds that took."""

    judge: str
    judged: tuple[Judged, ...]
    seconds: float

    @property
    def confusion(self) -> Confusion:
        return confusion_of(self.judged)

    @property
    def by_kind(self) -> dict[str, Confusion]:
        """In the order of their first response; empty where no kinds are known."""
        kinds = dict.fromkeys(one.labelled.kind for one in self.judged if one.labelled.kind)
        return {kind: confusion_of([one for one in self.judged if one.labelled.kind == kind]) for kind in kinds}

    def wrong(self, label: bool) -> list[Judged]:
        """The false verdicts on responses with that label: the false nos of yes, the false yeses of no."""
        return [one for one in self.judged if one.labelled.label == label and one.verdict == (not label)]

    @property
    def failed(self) -> list[Judged]:
        return [one for one in self.judged if one.verdict is None]


def confusion_of(judged: Sequence[Judged]) -> Confusion:
    pairs = [(one.verdict, one.labelled.label) for one in judged]
    return Confusion(
        true_yes=pairs.count((True, True)),
        false_yes=pairs.count((True, False)),
        false_no=pairs.count((False, True)),
        true_no=pairs.count((False, False)),
        failed=sum(verdict is None for verdict, _ in pairs),
    )


def calibrate(
    name: str, judge: Judge, labelled: Sequence[Labelled], num_concurrent: int, on_done: Callable[[], None]
) -> Calibration:
    """Ask the judge about all of them, so many at a time. Raises UserError where the judge does."""

    async def all_of_them() -> list[Judged]:
        places = asyncio.Semaphore(num_concurrent)

        async def one_of_them(one: Labelled) -> Judged:
            async with places:
                judged = await _judged(judge, one)
            on_done()
            return judged

        return list(await asyncio.gather(*map(one_of_them, labelled)))

    began = time.perf_counter()
    judged = asyncio.run(all_of_them())
    return Calibration(name, tuple(judged), time.perf_counter() - began)


async def _judged(judge: Judge, one: Labelled) -> Judged:
    try:
        return Judged(one, (await judge.judge(one.question, one.response, one.references)).correct)
    except RolloutError as error:
        return Judged(one, None, str(error))
