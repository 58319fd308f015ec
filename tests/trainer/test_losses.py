"""Every policy loss against numbers worked out by hand, where old = new - log(rho), and where numbers are odd."""

import math
from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
import torch

from slimrl.config.loss import POLICIES, PRESETS, Aggregation, LossConfig
from slimrl.errors import UserError
from slimrl.trainer.losses import POLICY_LOSSES, TokenBatch, kl_to_reference, token_weights
from slimrl.trainer.own_loss import load_policy_loss


def loss_of(type_, new, rho, advantage, sequence=None, **numbers):
    """(losses, gradients with respect to `new`, capped) as lists, with the preset's own numbers but for these."""
    loss = LossConfig(type=type_, **numbers).resolve()
    new_N = torch.tensor(new, dtype=torch.float64, requires_grad=True)
    old_N = torch.tensor([n - math.log(r) for n, r in zip(new, rho, strict=True)], dtype=torch.float64)
    sequence_N = torch.tensor(sequence if sequence is not None else [0] * len(new))
    tokens = TokenBatch(new_N, old_N, torch.tensor(advantage, dtype=torch.float64), sequence_N)
    loss_N, clipped_N = load_policy_loss(loss)(tokens)
    loss_N.sum().backward()
    return loss_N.tolist(), new_N.grad.tolist(), clipped_N.tolist()


def policy_loss(policy, tokens):
    return load_policy_loss(LossConfig(policy=policy).resolve())(tokens)


# The mean log ratios of gspo's two sequences: 0.0001, inside of 3e-4 and 4e-4, and 0.1, outside.
INSIDE, APART = math.exp(1e-4), {"rho": [math.exp(x) for x in (0.2, -0.1998, 0.1, 0.1)], "sequence": [0, 0, 1, 1]}
BAD = {"rho": [2, 5, 5, 0.5], "advantage": [-1, -1, 1, -1]}
BY_HAND = {
    "aipo weighs by the ratio up to its one-sided cap, a constant": (
        *("aipo", [-1, -2, -3, -1], {"rho": [1, 2, 16, 0.01], "advantage": [1, -0.5, 2, 1]}),
        *([1, -2, 48, 0.01], [-1, 1, -16, -0.01], [2]),
    ),
    "clip takes the pessimistic side and stops the gradient there": (
        *("grpo", [-1] * 5, {"rho": [1, 2, 2, 0.5, 0.5], "advantage": [1, 1, -1, 1, -1]}),
        *([-1, -1.2, 2, -0.5, 0.8], [-1, 0, 2, -0.5, 0], [1, 4]),
    ),
    "dapo clips higher above than below": (
        *("dapo", [-1] * 3, {"rho": [1.25, 1.3, 0.75], "advantage": [1, 1, -1]}),
        *([-1.25, -1.28, 0.8], [-1.25, 0, 0], [1, 2]),
    ),
    "gspo clips all tokens of a sequence together, with each token's own gradient": (
        *("gspo", [-1] * 4, {**APART, "advantage": [2, 2, 1, 1]}),
        *([-2 * INSIDE, -2 * INSIDE, -1.0004, -1.0004], [-2 * INSIDE, -2 * INSIDE, 0, 0], [2, 3]),
    ),
    "gspo keeps the sequence ratio of a bad rollout": (
        *("gspo", [-1, -2], {"rho": [math.exp(0.3), math.exp(-0.1)], "advantage": [-1, -1]}),
        *([math.exp(0.1)] * 2, [math.exp(0.1)] * 2, []),
    ),
    "cispo caps the weight and keeps the gradient": (
        *("cispo", [-1, -2, -3], {"rho": [1, 16, 0.01], "advantage": [1, 1, -1]}),
        *([1, 12, -0.03], [-1, -6, 0.01], [1]),
    ),
    **{
        f"{name} ignores the ratio": (
            *(name, [-1, -2], {"rho": [1, 16], "advantage": [0.5, -2]}),
            *([0.5, -4], [-0.5, 2], []),
        )
        for name in ("reinforce", "rloo", "opo")
    },
    "reinforce weighs stale tokens up to its cap": (
        *("rloo", [-1] * 4, {"rho": [0.5, 1, 2, 16], "advantage": [1, 1, 1, -1], "max_weight": 2.0}),
        *([0.5, 1, 2, -2], [-0.5, -1, -2, 2], [3]),
    ),
    "dual clip bounds the loss of bad tokens alone": (
        *("ppo", [-1] * 4, {**BAD, "dual_clip": 3.0}),
        *([2, 3, -1.2, 0.8], [2, 0, 0, 0], [1, 2, 3]),
    ),
    "without dual clip it has no bound": ("ppo", [-1] * 4, BAD, [2, 5, -1.2, 0.8], [2, 5, 0, 0], [2, 3]),
    **{
        f"the cap of {name} holds where the ratio overflows": (
            *(name, [-2.0], {"rho": [math.exp(89)], "advantage": [1]}),
            *([loss], [gradient], [0]),
        )
        for name, loss, gradient in (("aipo", 16, -8), ("grpo", -1.2, 0), ("cispo", 12, -6))
    },
}


@pytest.mark.parametrize("case", BY_HAND)
def test_losses_gradients_and_clips_are_those_worked_out_by_hand(case):
    type_, new, numbers, expected, expected_gradient, expected_clipped = BY_HAND[case]
    loss, gradient, clipped = loss_of(type_, new, **numbers)
    assert loss == pytest.approx(expected) and gradient == pytest.approx(expected_gradient)
    assert [number for number, clip in enumerate(clipped) if clip] == expected_clipped


def test_kl_to_a_reference_is_k3():
    new_N = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    kl_N = kl_to_reference(new_N, torch.tensor([-1.0, -1.5, -4.0]))
    assert kl_N.tolist() == pytest.approx([0, math.exp(0.5) - 1.5, math.exp(-1)])
    kl_N.sum().backward()
    assert new_N.grad.tolist() == pytest.approx([0, 1 - math.exp(0.5), 1 - math.exp(-1)])  # 1 - e^(ref - new)


def test_kl_to_a_reference_overflows_nowhere_and_pushes_improbable_tokens_down():
    new_N = torch.tensor([-1.0, -1.0, -1.0, -1.0, -1e4], requires_grad=True)
    kl_N = kl_to_reference(new_N, torch.tensor([-30.0, -200.0, -1e4, -math.inf, -1.0]))
    kl_N.sum().backward()
    assert kl_N.isfinite().all()
    assert new_N.grad.tolist() == pytest.approx([1.0] * 4 + [0.0])


@pytest.mark.parametrize("dual_clip", [0.0, 3.0])
def test_gradients_are_those_of_finite_differences(dual_clip):
    new_N = torch.tensor([-1.0, -0.9, -2.0, -0.2, -0.3], dtype=torch.float64, requires_grad=True)
    rho_N = torch.tensor([1.05, 1.6, 0.4, 0.9, 5.0], dtype=torch.float64)  # within, above, below; and far above
    advantage_N = torch.tensor([1.0, 2.0, -0.5, -1.0, -2.0], dtype=torch.float64)
    loss = LossConfig(type="ppo", dual_clip=dual_clip).resolve()
    tokens = TokenBatch(new_N, new_N.detach() - rho_N.log(), advantage_N, torch.zeros(5, dtype=torch.long))
    assert torch.autograd.gradcheck(lambda x: load_policy_loss(loss)(replace(tokens, new_N=x))[0], new_N)
    reference_N = torch.tensor([-1.5, -1.0, -30.0, -2.0, -0.3], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: kl_to_reference(x, reference_N), new_N)


def test_the_table_of_numbers_and_the_functions_name_the_same_losses():
    assert POLICY_LOSSES.keys() == POLICIES.keys()


OWN = """
from slimrl.trainer.losses import aipo


def own(tokens, delta: float = 1.0):
    return aipo(tokens, delta)


def one(tokens):
    return aipo(tokens, 1.0)[0]


def summed(tokens):
    return [part.sum() for part in aipo(tokens, 1.0)]
"""


def own_loss(tmp_path, name, **args):
    (tmp_path / "own.py").write_text(OWN)
    return load_policy_loss(LossConfig(policy=f"{tmp_path / 'own.py'}:{name}", policy_args=args).resolve())


def test_a_function_of_one_s_own_is_called_with_its_arguments(tmp_path):
    new_N, zeros = torch.tensor([-1.0, -2.0], requires_grad=True), torch.zeros(2)
    tokens = TokenBatch(new_N, new_N.detach() - 2.0, torch.tensor([1.0, -1.0]), zeros.long())
    own, ours = own_loss(tmp_path, "own", delta=3.0)(tokens), POLICY_LOSSES["aipo"](tokens, 3.0)
    assert [part.tolist() for part in own] == [part.tolist() for part in ours]
    assert own_loss(tmp_path, "own")(tokens)[0].tolist() == POLICY_LOSSES["aipo"](tokens, 1.0)[0].tolist()
    for wrong in ("one", "summed"):
        with pytest.raises(UserError, match=f"`.*own.py:{wrong}` must return two tensors"):
            own_loss(tmp_path, wrong)(tokens)


@pytest.mark.parametrize("type_", PRESETS)
def test_on_policy_every_loss_is_the_plain_policy_gradient(type_):
    _, gradient, clipped = loss_of(type_, [-1, -0.1, -5], rho=[1, 1, 1], advantage=[1, -2, 0], sequence=[0, 1, 2])
    assert gradient == pytest.approx([-1, 2, 0])
    assert not any(clipped)


@pytest.mark.parametrize("policy", POLICY_LOSSES)
def test_huge_ratios_overflow_nowhere_and_no_advantage_or_token_means_no_loss(policy):
    huge_N = torch.tensor([89.0, -89.0, 1e4, -1e4]).repeat(2)
    new_N = torch.full((8,), -1.0, requires_grad=True)
    tokens = TokenBatch(new_N, new_N.detach() - huge_N, torch.tensor([1.0] * 4 + [-1.0] * 4), torch.arange(8))
    loss_N, _ = policy_loss(policy, tokens)
    loss_N.sum().backward()
    assert loss_N.isfinite().all() and new_N.grad.isfinite().all()
    new_N.grad = None
    loss_N, _ = policy_loss(policy, replace(tokens, advantage_N=torch.zeros(8)))
    loss_N.sum().backward()
    assert loss_N.tolist() == new_N.grad.tolist() == [0.0] * 8
    loss_N, clipped_N = policy_loss(policy, TokenBatch(*[torch.zeros(0)] * 3, torch.zeros(0, dtype=torch.long)))
    assert loss_N.shape == clipped_N.shape == (0,)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("token", [1 / 4, 1 / 4]), ("sequence", [1 / 2, 1 / 6]), ("constant", [1 / 20, 1 / 20])],
)
def test_token_weights_of_rollouts_of_one_and_three_tokens(aggregation, expected):
    assert token_weights([1, 3], aggregation, seq_len=10) == pytest.approx(expected)


LONG = [20_000, 1, 10_000, 3]  # tokens of rollouts


def long_tokens(spread):
    generator = torch.Generator().manual_seed(0)
    sequence_N = torch.arange(len(LONG)).repeat_interleave(torch.tensor(LONG))
    new_N = -torch.empty(sum(LONG)).exponential_(generator=generator)
    old_N = new_N - spread * torch.randn(sum(LONG), generator=generator)
    return TokenBatch(new_N, old_N, torch.randn(len(LONG), generator=generator)[sequence_N], sequence_N)


def in_float64(tokens):
    return TokenBatch(tokens.new_N.double(), tokens.old_N.double(), tokens.advantage_N.double(), tokens.sequence_N)


@pytest.mark.parametrize(("policy", "aggregation"), [*product(POLICIES, get_args(Aggregation))])
def test_long_sequences_lose_no_accuracy_in_float32(policy, aggregation):
    weights = torch.tensor(token_weights(LONG, aggregation, seq_len=40_000), dtype=torch.float64)
    found = []
    for tokens in (long := long_tokens(0.3 if policy != "gspo" else 0.01), in_float64(long)):
        new_N = tokens.new_N.clone().requires_grad_()
        loss_N, _ = policy_loss(policy, replace(tokens, new_N=new_N))
        loss = (loss_N * weights.to(new_N.dtype)[tokens.sequence_N]).sum()
        loss.backward()
        found.append((loss.item(), new_N.grad.double()))
    (loss, gradient_N), (exact, exact_gradient_N) = found
    size = float((exact_gradient_N * long.new_N.double()).abs().sum())  # the sum, whatever its signs
    assert loss == pytest.approx(exact, abs=1e-5 * max(size, abs(exact)))
    torch.testing.assert_close(gradient_N, exact_gradient_N, rtol=1e-5, atol=1e-12)
    if aggregation == "sequence":  # a rollout's tokens weigh a quarter together, be they 20,000 or one
        assert (weights * torch.tensor(LONG)).tolist() == pytest.approx([0.25] * 4)
