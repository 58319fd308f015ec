"""On-policy distillation: a teacher scores every token that the policy (the student) has sampled.

The student S sees x, the teacher T sees x and perhaps a context c, and S has sampled the tokens y. At token t

    A'_t = adv_tau A_t + teacher_tau log p_T(y_t | c, x, y_<t) - student_tau log p_S(y_t | x, y_<t)

replaces the advantage, with no gradient through either log-probability. If adv_tau = 0 and the other two taus are equal
to tau, the expectation of A'_t under S is -tau KL(S || T). student_tau alone is an entropy bonus.

A baseline is subtracted from the last two terms: their mean over the other rollouts that have the same tokens before t
(`subtract_baseline`). The expected gradient stays the same. Without a baseline the update would lower the probability
of nearly every sampled token, because the teacher usually finds a sampled token less probable than the student does.

This module does not depend on the implementation of a teacher (`Teacher`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from slimrl.config.loss import ResolvedLoss
from slimrl.errors import RolloutError, UserError
from slimrl.io.loop_thread import gather_all
from slimrl.orchestrator.curriculum import Draw
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, read_opening
from slimrl.rollout.loop import run_episodes
from slimrl.types import Metrics, Rollout, Sample, SamplingParams, Taskset

# A token that the teacher forbids has log-probability -inf, and an infinite advantage would make the update nan. A
# probability of e^-100 is too small for float32.
LOWEST_LOGPROB = -100.0
UNUSED = SamplingParams(max_tokens=1)  # for an episode that reads only the opening and samples nothing

Opening = tuple[int, ...] | None
"""The token ids that a teacher reads before the first sampled token; None if the teacher reads the student's prompt."""


class Teacher(Protocol):
    """A model that scores tokens."""

    def score(self, samples: Sequence[Sample], temperature: float) -> list[list[float]]:
        """Return the log-probabilities of the trained tokens of every sample, in the order of the tokens. Raises
        UserError if the teacher cannot compute them."""


@dataclass(frozen=True, slots=True)
class Distillation:
    """A teacher and its input. `tasksets` has one taskset for each taskset of the student. The teacher reads the
    openings of episodes of these tasksets, which contain additional context. Without `tasksets`, the teacher reads the
    student's input. A rollout is marked as failed if it has more than `seq_len` tokens together with the teacher's
    opening."""

    teacher: Teacher
    tasksets: Sequence[Taskset]
    context: RolloutContext
    seq_len: int

    def openings(self, draws: Sequence[Draw]) -> list[Opening | RolloutError]:
        """Return for each draw the teacher's opening, or an error if the teacher's environment could not start. Without
        `tasksets`, all openings are None."""
        if not self.tasksets:
            return [None] * len(draws)

        async def read(draw: Draw) -> Opening | RolloutError:
            try:
                spec = EpisodeSpec(self.tasksets[draw.env], draw.task, UNUSED)
                return tuple(await read_opening(spec, self.context))
            except RolloutError as error:
                return error

        return run_episodes(gather_all(*map(read, draws), at_once=self.context.num_concurrent))

    def check_readable(self, rollout: Rollout, opening: Opening | RolloutError) -> Rollout:
        """Return the rollout, marked as failed if the teacher cannot read it."""
        if rollout.failure:
            return rollout
        if isinstance(opening, RolloutError):
            return _mark_failed(rollout, opening.reason, f"the teacher's environment: {opening.detail}")
        num_more = 0 if opening is None else len(opening) - rollout.loss_mask_T.index(True)
        length = len(rollout.token_ids_T) + num_more
        if length > self.seq_len:
            reads = f"which reads {self.seq_len} at most: raise teacher.seq_len"
            detail = f"{length} tokens with the context of the teacher, {reads}"
            return _mark_failed(rollout, "teacher_prompt_too_long", detail)
        return rollout

    def apply(
        self, samples: Sequence[Sample], openings: Sequence[Opening], loss: ResolvedLoss, temperature: float
    ) -> tuple[tuple[Sample, ...], Metrics]:
        """Return the samples with A' as advantages, and the `distill/` metrics. `openings` has one entry per sample."""
        if not samples:
            return (), {}
        read = [as_read(sample, opening) for sample, opening in zip(samples, openings, strict=True)]
        scores_BN = check_scores(self.teacher.score(read, temperature))
        teacher_N = [score for scores_N in scores_BN for score in scores_N]
        student_N = [s for sample in samples for s in _select_trained(sample.logprobs_T, sample.loss_mask_T)]
        teacher, student = sum(teacher_N) / len(teacher_N), sum(student_N) / len(student_N)
        metrics: Metrics = {
            "distill/teacher_logprob": teacher,
            "distill/student_logprob": student,
            "distill/reverse_kl": student - teacher,
        }
        terms_BN = [teacher_terms(sample, scores_N, loss) for sample, scores_N in zip(samples, scores_BN, strict=True)]
        pairs = zip(samples, subtract_baseline(samples, terms_BN), strict=True)
        return tuple(with_advantages(sample, values_N, loss) for sample, values_N in pairs), metrics


def teacher_terms(sample: Sample, teacher_N: Sequence[float], loss: ResolvedLoss) -> list[float]:
    """Return teacher_tau log p_T - student_tau log p_S of every trained token of a sample, given log p_T.

    A value is exactly 0 if both log-probabilities and both taus are equal. It is also 0 if the sampler's
    log-probability is not finite: the trainer masks this token, and the token's value must not affect the baseline of
    other tokens.
    """
    pairs = zip(teacher_N, _select_trained(sample.logprobs_T, sample.loss_mask_T), strict=True)
    return [loss.teacher_tau * t - loss.student_tau * s if math.isfinite(s) else 0.0 for t, s in pairs]


def subtract_baseline(samples: Sequence[Sample], values_BN: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return each trained token's value minus a baseline. The baseline is the mean value of the other samples' tokens
    after the same prefix. The prefix is all earlier tokens. If no other sample has this prefix, the baseline is 0.

    The baseline does not depend on the sampled token, so the expected gradient is unchanged (leave-one-out, as in RLOO,
    2402.14740).
    """
    # The samples' tokens form a trie. `nodes` maps a parent node's number and the next token to the number of a node,
    # so the node of a token costs one look-up, not a comparison of whole prefixes. The root of a trie stands for a
    # prompt: its key is the tuple of all tokens before the first trained token.
    #
    # For example, samples that answer the prompt (5, 6) with "7 8" and "7 9" pass these nodes. A node is written as the
    # tokens before the sampled token:
    #     0 = (5, 6)   1 = (5, 6, 7)   2 = (5, 6, 7, 8)   3 = (5, 6, 7, 9)
    # The values at 7 are compared in node 0, the values at 8 and 9 in node 1.
    nodes: dict[tuple[object, int], int] = {}
    nodes_BN: list[list[int]] = []
    for sample in samples:
        first = sample.loss_mask_T.index(True)
        node, nodes_N = nodes.setdefault((sample.token_ids_T[:first], 0), len(nodes)), []
        for token, trained in zip(sample.token_ids_T[first:], sample.loss_mask_T[first:], strict=True):
            if trained:
                nodes_N.append(node)
            node = nodes.setdefault((node, token), len(nodes))
        nodes_BN.append(nodes_N)

    sums, counts = [0.0] * len(nodes), [0] * len(nodes)
    pairs_BN = [list(zip(*pair, strict=True)) for pair in zip(nodes_BN, values_BN, strict=True)]
    for node, value in chain.from_iterable(pairs_BN):
        sums[node] += value
        counts[node] += 1
    # For a token alone in its node, the sum of the others is 0, hence the baseline 0.
    return [
        [value - (sums[node] - value) / max(1, counts[node] - 1) for node, value in pairs_N] for pairs_N in pairs_BN
    ]


def with_advantages(sample: Sample, values_N: Sequence[float], loss: ResolvedLoss) -> Sample:
    """Return the sample with new advantages: adv_tau A_t plus the value of each trained token."""
    values, advantages_T = iter(values_N), [0.0] * len(sample.token_ids_T)
    for t, trained in enumerate(sample.loss_mask_T):
        if trained:
            advantages_T[t] = loss.adv_tau * sample.advantages_T[t] + next(values)
    assert next(values, None) is None, "more values than trained tokens"
    return replace(sample, advantages_T=tuple(advantages_T))


def without_teacher(sample: Sample, loss: ResolvedLoss) -> Sample:
    """Return the sample with the advantages A' for a run without a teacher: `adv_tau` is the weight of the reward's
    advantage, and `student_tau` adds an entropy bonus."""
    if loss.adv_tau == 1.0 and not loss.student_tau:
        return sample
    nothing = [0.0] * sum(sample.loss_mask_T)
    return with_advantages(sample, teacher_terms(sample, nothing, loss), loss)


def as_read(sample: Sample, opening: Opening) -> Sample:
    """Return the sample with the teacher's opening, if there is one, in place of all tokens before the first sampled
    token. Log-probabilities and advantages are set to 0, because a teacher does not read them."""
    token_ids_T, loss_mask_T = sample.token_ids_T, sample.loss_mask_T
    if opening is not None:
        first = loss_mask_T.index(True)
        token_ids_T = *opening, *token_ids_T[first:]
        loss_mask_T = *(False for _ in opening), *loss_mask_T[first:]
    nothing = (0.0,) * len(token_ids_T)
    return Sample(token_ids_T, loss_mask_T, nothing, nothing, sample.version)


def check_scores(scores_BN: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the teacher's scores, each raised to at least LOWEST_LOGPROB. Raises UserError if one is no valid
    log-probability."""
    for scores_N in scores_BN:
        if odd := [score for score in scores_N if math.isnan(score) or score > 1e-3]:
            raise UserError(
                f"the teacher gave {odd[0]} for a log-probability, which must be 0 or less: its weights or what it "
                "computes from them are broken. Look at [teacher]; the run continues with `--resume`."
            )
    return [[max(score, LOWEST_LOGPROB) for score in scores_N] for scores_N in scores_BN]


def _select_trained(values_T: Sequence[float], loss_mask_T: Sequence[bool]) -> list[float]:
    return [value for value, trained in zip(values_T, loss_mask_T, strict=True) if trained]


def _mark_failed(rollout: Rollout, reason: str, detail: str) -> Rollout:
    return replace(rollout, reward=math.nan, failure=reason, failure_detail=detail)
