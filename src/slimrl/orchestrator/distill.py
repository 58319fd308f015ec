"""Distillation on the policy's own rollouts: a teacher that reads more says what it thinks of every sampled token.

The student S sees x, the teacher T sees x and a context c, and S has sampled the tokens y. At token t

    A'_t = adv_tau A_t + teacher_tau log p_T(y_t | c, x, y_<t) - student_tau log p_S(y_t | x, y_<t)

takes the place of the advantage, with no gradient through either log-probability. With adv_tau = 0 and the other two
equal its expectation under S is -KL(S || T) times their value; student_tau alone is an entropy bonus.

What is added to adv_tau A_t is compared with what the other rollouts earned there that said the same up to t
(`compared`). The expected gradient is the same. Without it nearly every token is pushed down, as a teacher's
probability of what a student samples is mostly lower than the student's own, and what rises instead is chance.

Knows nothing of how a teacher computes.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from slimrl.config.loss import ResolvedLoss
from slimrl.environments.base import Taskset
from slimrl.errors import RolloutError, UserError
from slimrl.orchestrator.curriculum import Draw
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, read_opening
from slimrl.types import Metrics, Rollout, Sample, SamplingParams

# A token that the teacher forbids has log-probability -inf, and an infinite advantage would spoil the step. This is
# less than float32 can express as a probability.
LOWEST_LOGPROB = -100.0
BEGIN = SamplingParams(max_tokens=1)  # of an episode that is only begun

Opening = tuple[int, ...] | None
"""The token ids of a conversation up to the first sampled one; None for what the student itself was given."""


class Teacher(Protocol):
    """Whoever has an opinion on tokens."""

    def score(self, samples: Sequence[Sample], temperature: float) -> list[list[float]]:
        """log p of every trained token of every sample, in their order. Raises UserError if it cannot."""


@dataclass(frozen=True, slots=True)
class Distillation:
    """A teacher, and how it reads the tasks: one of `tasksets` for each of the student's, with more context in what
    their episodes begin with (none where it reads what the student does), and at most `seq_len` tokens of a rollout."""

    teacher: Teacher
    tasksets: Sequence[Taskset]
    context: RolloutContext
    seq_len: int

    def openings(self, draws: Sequence[Draw]) -> list[Opening | RolloutError]:
        """What the teacher reads before the first turn, or why it could not."""
        if not self.tasksets:
            return [None] * len(draws)
        places = asyncio.Semaphore(self.context.num_concurrent)

        async def read(draw: Draw) -> Opening | RolloutError:
            async with places:
                try:
                    spec = EpisodeSpec(self.tasksets[draw.env], draw.task, BEGIN)
                    return tuple(await read_opening(spec, self.context))
                except RolloutError as error:
                    return error

        async def read_all() -> list[Opening | RolloutError]:
            return list(await asyncio.gather(*map(read, draws)))

        return asyncio.run(read_all())

    def readable(self, rollout: Rollout, opening: Opening | RolloutError) -> Rollout:
        """The rollout, as a failed one if the teacher cannot read it."""
        if rollout.failure:
            return rollout
        if isinstance(opening, RolloutError):
            return _failed(rollout, opening.reason, f"the teacher's environment: {opening.detail}")
        length = len(with_opening(rollout.token_ids_T, rollout.loss_mask_T, opening)[0])
        if length > self.seq_len:
            reads = f"which reads {self.seq_len} at most: raise teacher.seq_len"
            detail = f"{length} tokens with the context of the teacher, {reads}"
            return _failed(rollout, "teacher_prompt_too_long", detail)
        return rollout

    def taught(
        self, samples: Sequence[Sample], openings: Sequence[Opening], loss: ResolvedLoss, temperature: float
    ) -> tuple[tuple[Sample, ...], Metrics]:
        """The samples with A' for advantages, and `distill/` metrics. `openings` are the teacher's, one a sample."""
        if not samples:
            return (), {}
        read = [as_read(sample, opening) for sample, opening in zip(samples, openings, strict=True)]
        scores_BN = checked_scores(self.teacher.score(read, temperature), samples)
        teacher_N = [score for scores_N in scores_BN for score in scores_N]
        student_N = [s for sample in samples for s in _trained(sample.logprobs_T, sample.loss_mask_T)]
        teacher, student = sum(teacher_N) / len(teacher_N), sum(student_N) / len(student_N)
        metrics: Metrics = {
            "distill/teacher_logprob": teacher,
            "distill/student_logprob": student,
            "distill/reverse_kl": student - teacher,
        }
        opinions_BN = [opinions(sample, scores_N, loss) for sample, scores_N in zip(samples, scores_BN, strict=True)]
        pairs = zip(samples, compared(samples, opinions_BN), strict=True)
        return tuple(distilled(sample, values_N, loss) for sample, values_N in pairs), metrics


def opinion(teacher: float, student: float, loss: ResolvedLoss) -> float:
    """teacher_tau log p_T - student_tau log p_S, of one token: exactly 0 for equal log-probabilities and taus. One
    whose log-probability the sampler could not tell is not trained on, and 0, so that it spoils no mean."""
    return loss.teacher_tau * teacher - loss.student_tau * student if math.isfinite(student) else 0.0


def opinions(sample: Sample, teacher_N: Sequence[float], loss: ResolvedLoss) -> list[float]:
    """That of every trained token, whose scores by the teacher are `teacher_N`."""
    student_N = _trained(sample.logprobs_T, sample.loss_mask_T)
    return [opinion(teacher, student, loss) for teacher, student in zip(teacher_N, student_N, strict=True)]


def compared(samples: Sequence[Sample], values_BN: Sequence[Sequence[float]]) -> list[list[float]]:
    """The value of every trained token less the mean of what the other samples have there, of those that are the same
    up to there; as it is where there is none. A baseline that does not depend on the token itself leaves the expected
    gradient as it is (leave-one-out, as in RLOO; 2402.14740)."""
    states: dict[tuple[object, int], int] = {}
    places_BN: list[list[int]] = []
    for sample in samples:
        first = sample.loss_mask_T.index(True)
        state, places_N = states.setdefault((sample.token_ids_T[:first], 0), len(states)), []
        for token, trained in zip(sample.token_ids_T[first:], sample.loss_mask_T[first:], strict=True):
            if trained:
                places_N.append(state)
            state = states.setdefault((state, token), len(states))
        places_BN.append(places_N)
    sums, counts = [0.0] * len(states), [0] * len(states)
    pairs_BN = [list(zip(*pair, strict=True)) for pair in zip(places_BN, values_BN, strict=True)]
    for place, value in chain.from_iterable(pairs_BN):
        sums[place] += value
        counts[place] += 1
    return [
        [value - (sums[place] - value) / max(1, counts[place] - 1) for place, value in pairs_N] for pairs_N in pairs_BN
    ]


def distilled(sample: Sample, values_N: Sequence[float], loss: ResolvedLoss) -> Sample:
    """The sample with adv_tau A_t and the value of each trained token for its advantages."""
    values, advantages_T = iter(values_N), [0.0] * len(sample.token_ids_T)
    for t, trained in enumerate(sample.loss_mask_T):
        if trained:
            advantages_T[t] = loss.adv_tau * sample.advantages_T[t] + next(values)
    assert next(values, None) is None, "more values than trained tokens"
    return replace(sample, advantages_T=tuple(advantages_T))


def with_entropy_bonus(sample: Sample, loss: ResolvedLoss) -> Sample:
    """A' without a teacher: what `student_tau` alone adds."""
    nothing = [0.0] * sum(sample.loss_mask_T)
    return distilled(sample, opinions(sample, nothing, loss), loss) if loss.student_tau else sample


def with_opening(
    token_ids_T: Sequence[int], loss_mask_T: Sequence[bool], opening: Opening
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Tokens and mask with another opening: what stands before the first sampled token is the student's own."""
    if opening is None:
        return tuple(token_ids_T), tuple(loss_mask_T)
    first = list(loss_mask_T).index(True)
    return (*opening, *token_ids_T[first:]), (*[False] * len(opening), *loss_mask_T[first:])


def as_read(sample: Sample, opening: Opening) -> Sample:
    """A sample as the teacher reads it; nobody has logged log-probabilities or advantages of these."""
    token_ids_T, loss_mask_T = with_opening(sample.token_ids_T, sample.loss_mask_T, opening)
    nothing = (0.0,) * len(token_ids_T)
    return Sample(token_ids_T, loss_mask_T, nothing, nothing, sample.version)


def checked_scores(scores_BN: Sequence[Sequence[float]], samples: Sequence[Sample]) -> list[list[float]]:
    """The scores, made sure to be one log-probability for each trained token, and none below LOWEST_LOGPROB."""
    for scores_N, sample in zip(scores_BN, samples, strict=True):
        if len(scores_N) != sum(sample.loss_mask_T):
            raise UserError(
                f"the teacher gave {len(scores_N)} scores for a rollout of {sum(sample.loss_mask_T)} sampled tokens, "
                "so they cannot be matched. Its server or its model is not what [teacher] says."
            )
        if odd := [score for score in scores_N if math.isnan(score) or score > 1e-3]:
            raise UserError(
                f"the teacher gave {odd[0]} for a log-probability, which must be 0 or less: its weights or what it "
                "computes from them are broken. Look at [teacher]; the run continues with `--resume`."
            )
    return [[max(score, LOWEST_LOGPROB) for score in scores_N] for scores_N in scores_BN]


def _trained(values_T: Sequence[float], loss_mask_T: Sequence[bool]) -> list[float]:
    return [value for value, trained in zip(values_T, loss_mask_T, strict=True) if trained]


def _failed(rollout: Rollout, reason: str, detail: str) -> Rollout:
    return replace(rollout, reward=math.nan, failure=reason, failure_detail=detail)
