"""Distillation: the formula, the teacher's view of a rollout, and batches with a teacher that is told what to say."""

import math
from dataclasses import dataclass, field, replace
from itertools import product

import pytest
import torch

from slimrl.config.loss import LossConfig
from slimrl.errors import RolloutError, UserError
from slimrl.monitor.metrics import lookup
from slimrl.orchestrator.curriculum import Draw
from slimrl.orchestrator.distill import (
    LOWEST_LOGPROB,
    Distillation,
    as_read,
    check_scores,
    subtract_baseline,
    teacher_terms,
    with_advantages,
    without_teacher,
)
from slimrl.types import Sample, Task, Turn
from tests.orchestrator.made import make_orchestrator
from tests.rollout.scripted import CHAT, LOGPROB, DigitClient, OneTask, Quiz, ScriptedClient, make_context, user

PURE = LossConfig(adv_tau=0.0, teacher_tau=1.0, student_tau=1.0).resolve(has_teacher=True)
# The two-turn rollout of `types.Rollout`.
TWO_TURNS = Sample(
    token_ids_T=(5, 6, 7, 8, 9, 5, 10, 7, 11, 9),
    loss_mask_T=(False,) * 3 + (True,) * 2 + (False,) * 3 + (True,) * 2,
    logprobs_T=(0.0, 0.0, 0.0, -0.5, -1.0, 0.0, 0.0, 0.0, -1.5, -2.0),
    advantages_T=(0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, -1.0, -1.0),
    version=0,
)


@dataclass
class FixedTeacher:
    """Gives every token the same score; remembers what it was shown."""

    score_of_each: float = -0.25
    seen: list[Sample] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)

    def score(self, samples, temperature):
        self.seen += samples
        self.temperatures.append(temperature)
        return [[self.score_of_each] * sum(sample.loss_mask_T) for sample in samples]


def test_every_token_gets_the_formulas_value():
    loss = LossConfig(adv_tau=2.0, teacher_tau=0.5, student_tau=0.25).resolve(has_teacher=True)
    taught = with_advantages(TWO_TURNS, teacher_terms(TWO_TURNS, [-0.1, -0.2, -0.3, -0.4], loss), loss)
    expected = [2 - 0.05 + 0.125, 2 - 0.1 + 0.25, -2 - 0.15 + 0.375, -2 - 0.2 + 0.5]
    assert [taught.advantages_T[t] for t in (3, 4, 8, 9)] == pytest.approx(expected)
    assert {taught.advantages_T[t] for t in (0, 1, 2, 5, 6, 7)} == {0.0}
    assert replace(taught, advantages_T=TWO_TURNS.advantages_T) == TWO_TURNS


@pytest.mark.parametrize("tau", [1.0, 0.5, 0.3])
def test_a_teacher_that_agrees_gives_exactly_no_signal(tau):
    loss = LossConfig(adv_tau=0.0, teacher_tau=tau, student_tau=tau).resolve(has_teacher=True)
    taught = with_advantages(TWO_TURNS, teacher_terms(TWO_TURNS, [-0.5, -1.0, -1.5, -2.0], loss), loss)
    assert set(taught.advantages_T) == {0.0}


def said(*tokens: int, prompt: tuple[int, ...] = (5, 6)) -> Sample:
    num = len(prompt) + len(tokens)
    mask = (False,) * len(prompt) + (True,) * len(tokens)
    return Sample((*prompt, *tokens), mask, (0.0,) * num, (0.0,) * num, version=0)


def test_the_signals_mean_and_policy_gradient_are_those_of_minus_the_reverse_kl():
    generator = torch.Generator().manual_seed(1)
    logits, other = (torch.randn(7, generator=generator, dtype=torch.float64) for _ in range(2))
    logits.requires_grad_()
    student, teacher = logits.log_softmax(0), other.log_softmax(0)
    kl = (student.exp() * (student - teacher)).sum()
    sample = replace(said(*range(7)), logprobs_T=(0.0, 0.0, *student.tolist()))
    signal = torch.tensor(teacher_terms(sample, teacher.tolist(), PURE), dtype=torch.float64)
    assert (student.exp() * signal).sum().item() == pytest.approx(-kl.item())
    (expected,) = torch.autograd.grad(kl, logits, retain_graph=True)
    (gradient,) = torch.autograd.grad((student.exp().detach() * signal * student).sum(), logits)
    torch.testing.assert_close(gradient, -expected)


def test_a_token_is_compared_with_those_of_others_that_said_the_same_before_it():
    samples = [said(7, 8), said(7, 9), said(7, 8, 1), said(3, 8), said(7, 8, prompt=(5, 4))]
    values = [[1.0, 10.0], [2.0, 20.0], [4.0, 40.0, 3.0], [8.0, 80.0], [16.0, 160.0]]
    others = [
        [(2 + 4 + 8) / 3, (20 + 40) / 2],
        [(1 + 4 + 8) / 3, (10 + 40) / 2],
        [(1 + 2 + 8) / 3, (10 + 20) / 2, 0.0],  # nobody else went on
        [(1 + 2 + 4) / 3, 0.0],  # nobody else began so
        [0.0, 0.0],  # nobody else was asked this
    ]
    for found, values_N, others_N in zip(subtract_baseline(samples, values), values, others, strict=True):
        assert found == pytest.approx([value - other for value, other in zip(values_N, others_N, strict=True)])


def test_the_comparison_leaves_the_expected_gradient_as_it_is():
    """Over all pairs of two samples of one token: the gradient of each with its baseline, by its probability."""
    generator = torch.Generator().manual_seed(2)
    logits, other = (torch.randn(4, generator=generator, dtype=torch.float64) for _ in range(2))
    student, teacher = logits.softmax(0), other.log_softmax(0)
    value = (teacher - student.log()).tolist()
    score = torch.eye(4, dtype=torch.float64) - student  # the gradient of the log-probability of each token
    with_it = torch.zeros(4, dtype=torch.float64)
    for first, second in product(range(4), repeat=2):
        ((advantage,), _) = subtract_baseline([said(first), said(second)], [[value[first]], [value[second]]])
        with_it += student[first] * student[second] * advantage * score[first]
    without = sum(student[token] * value[token] * score[token] for token in range(4))
    torch.testing.assert_close(with_it, without)


def test_a_token_that_the_sampler_could_not_tell_spoils_no_mean():
    odd = replace(said(7, 8), logprobs_T=(0.0,) * (len(said(7, 8).token_ids_T) - 2) + (-math.inf, -1.0))
    samples = [odd, said(7, 9)]
    values = [teacher_terms(sample, [-2.0, -2.0], PURE) for sample in samples]
    assert values[0] == [0.0, -1.0]
    assert all(math.isfinite(value) for values_N in subtract_baseline(samples, values) for value in values_N)


def test_student_tau_alone_is_an_entropy_bonus():
    loss = LossConfig(student_tau=0.1).resolve()
    advantages = without_teacher(TWO_TURNS, loss).advantages_T
    assert [advantages[t] for t in (3, 4, 8, 9)] == pytest.approx([1.05, 1.1, -0.85, -0.8])
    assert without_teacher(TWO_TURNS, LossConfig().resolve()) is TWO_TURNS


@pytest.mark.parametrize("opening", [(70,), (5, 6, 7), (70, 71, 72, 73, 74)])
def test_the_teacher_reads_the_sampled_tokens_behind_its_own_opening(opening):
    read = as_read(TWO_TURNS, opening)
    assert read.token_ids_T == (*opening, 8, 9, 5, 10, 7, 11, 9)
    trained = [t for t, mask in enumerate(read.loss_mask_T) if mask]
    assert trained == [len(opening) + n for n in (0, 1, 5, 6)]
    assert [read.token_ids_T[t] for t in trained] == [8, 9, 11, 9]
    assert (own := as_read(TWO_TURNS, None)).token_ids_T == TWO_TURNS.token_ids_T  # without a context of its own
    assert own.loss_mask_T == TWO_TURNS.loss_mask_T


@pytest.mark.parametrize(
    ("scores", "complaint"),
    [
        ([-0.1, math.nan, -0.1, -0.1], "gave nan for a log-probability"),
        ([-0.1, 0.5, -0.1, -0.1], "gave 0.5 for a log-probability"),
    ],
)
def test_scores_that_cannot_be_are_refused(scores, complaint):
    with pytest.raises(UserError, match=complaint):
        check_scores([scores])


def test_a_token_that_the_teacher_forbids_has_a_finite_score():
    assert check_scores([[-math.inf, -1.0, 0.0, -2.0]]) == [[LOWEST_LOGPROB, -1.0, 0.0, -2.0]]


class Digits:
    """Reward 0.3 whatever is said; `hint` is read before the question."""

    def __init__(self, hint: str = "", fails: bool = False) -> None:
        self._hint, self._fails = hint, fails

    async def start(self):
        if self._fails:
            raise KeyError("no such document")
        return [user(f"{self._hint}say a digit")]

    async def step(self, reply):
        return Turn(done=True, reward=0.3)


def collected(teacher, loss, hint="read this first: ", fails=(), seq_len=400, hinted=True):
    """A batch of rollouts that all earn the same, with a teacher whose environments have the hint."""
    context, records = make_context(DigitClient()), {}
    tasksets = [OneTask(lambda task: Digits(), num_tasks=9)]
    theirs = OneTask(lambda task: Digits(hint, task.data["number"] in fails), num_tasks=9)
    distillation = Distillation(teacher, [theirs] if hinted else (), context, seq_len)
    batch = make_orchestrator(tasksets, records, context, loss, distillation).collect(0)
    return batch, records[0]


def test_with_a_teacher_equal_rewards_are_a_signal():
    teacher = FixedTeacher(-0.25)
    batch, _ = collected(teacher, LossConfig().resolve(has_teacher=True))
    assert len(batch.samples) == 12
    assert batch.metrics["reward/zero_signal_groups"] == 0.0
    replies = [sample.token_ids_T[-2:] for sample in batch.samples]
    for sample, (digit, _) in zip(batch.samples, replies, strict=True):
        first, second = sample.advantages_T[-2:]
        assert first == pytest.approx(0.0)  # all were asked the same, and are thought of alike
        is_alone = sum(other == digit for other, _ in replies) == 1
        assert second == pytest.approx(0.5 * -0.25 - 0.5 * LOGPROB if is_alone else 0.0)
    assert batch.metrics["distill/teacher_logprob"] == -0.25
    assert batch.metrics["distill/student_logprob"] == LOGPROB
    assert batch.metrics["distill/reverse_kl"] == LOGPROB + 0.25
    assert teacher.temperatures == [0.9]  # that of the sampling
    for name in batch.metrics:
        lookup(name)


@pytest.mark.parametrize("hinted", [True, False])
def test_the_teacher_is_shown_its_own_opening_if_it_has_one_and_the_same_tokens(hinted):
    teacher = FixedTeacher()
    batch, _ = collected(teacher, PURE, hinted=hinted)
    opening = CHAT.opening([user("read this first: " * hinted + "say a digit")])
    for read, sample in zip(teacher.seen, batch.samples, strict=True):
        assert read.token_ids_T == (*opening, *sample.token_ids_T[-2:])


def test_where_nothing_but_the_reward_counts_equal_rewards_are_dropped():
    teacher = FixedTeacher()
    loss = LossConfig(adv_tau=1.0, teacher_tau=0.0, student_tau=0.0).resolve(has_teacher=True)
    batch, _ = collected(teacher, loss)
    assert batch.samples == () and teacher.seen == []
    assert batch.metrics["drop/zero_signal"] == batch.metrics["rollout/num"]


def test_rollouts_that_the_teacher_cannot_begin_are_dropped_and_replaced():
    batch, records = collected(FixedTeacher(), PURE, fails=(0, 1, 2, 3))
    assert len(batch.samples) == 12
    dropped = batch.metrics["drop/environment_error"]
    assert dropped > 0
    assert batch.metrics["rollout/num"] == batch.metrics["rollout/num_trained"] + dropped
    failed = [record.rollout for record in records if record.rollout.failure]
    (detail,) = {rollout.failure_detail for rollout in failed}
    assert detail.startswith("the teacher's environment: KeyError: 'no such document' (test_distill.py:")


def test_a_context_that_is_too_long_is_told_by_its_key():
    with pytest.raises(UserError, match=r"teacher_prompt_too_long.*tokens.*reads 30 at most: raise teacher\.seq_len"):
        collected(FixedTeacher(), PURE, hint="x" * 100, seq_len=30)


def test_several_turns_and_environments_keep_their_own_openings():
    context = make_context(ScriptedClient([[40], [41]]))
    tasksets = [OneTask(lambda task: Digits("a")), OneTask(lambda task: Digits("bb", fails=True)), OneTask(Quiz)]
    draws = [Draw(env, tasksets[env], Task("t", {})) for env in (2, 0, 1, 0)]
    first, second, third, fourth = Distillation(FixedTeacher(), tasksets, context, 400).openings(draws)
    assert first == tuple(CHAT.opening([user("q")]))
    assert second == fourth == tuple(CHAT.opening([user("asay a digit")]))
    assert isinstance(third, RolloutError) and third.reason == "environment_error"
