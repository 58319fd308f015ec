"""The optimizer's update, against PyTorch's AdamW on float32 weights."""

import pytest
import torch
from torch import Tensor

from slimrl.models.native import ops
from slimrl.models.native.ops import PERIOD, AdamWSettings, Master
from tests.models.native.cases import random, threads

pytestmark = pytest.mark.usefixtures("kernels")
LENGTHS = [1, 2, 100, PERIOD - 1, PERIOD, PERIOD + 1, 2 * PERIOD, 3 * PERIOD + 17]
LR, BETAS, EPS, DECAY = 0.01, (0.9, 0.99), 1e-8, 0.1
FLOAT, ROUGH = torch.float32, torch.bfloat16


def settings(step: int, clip: float = 1.0, lr: float = LR) -> AdamWSettings:
    return AdamWSettings(lr, *BETAS, EPS, DECAY, clip, 1 - BETAS[0] ** step, 1 - BETAS[1] ** step)


def master_of(values: Tensor, dtype: torch.dtype, periods: int = 1) -> Master:
    """A fresh state whose masters are `values`."""
    generator = torch.Generator().manual_seed(7)
    threshold = torch.randint(1 << 16, (periods * PERIOD,), generator=generator, dtype=torch.int32)
    mean, square = torch.zeros(len(values)), torch.zeros(len(values))
    if dtype == FLOAT:
        return Master(values.clone(), None, threshold, mean, square)
    halves = (values.view(torch.int32) + repeated(threshold, len(values))).view(torch.int16).view(-1, 2)
    return Master(halves[:, 1].clone().view(ROUGH), halves[:, 0].clone(), threshold, mean, square)


def repeated(threshold: Tensor, length: int) -> Tensor:
    return threshold.repeat(-(-length // len(threshold)))[:length]


def values_of(master: Master) -> Tensor:
    """The float32 masters, joined from the two halves of their bits."""
    if master.low is None:
        return master.weight
    upper, lower = master.weight.view(torch.int16).int() << 16, master.low.int() & 0xFFFF
    return ((upper | lower) - repeated(master.threshold, len(upper))).view(FLOAT)


def gradient(length: int, step: int, dtype: torch.dtype) -> Tensor:
    """A random gradient with magnitudes from 1e-3 to 1e3, and a few zeros."""
    values = random(length, seed=100 + step, dtype=FLOAT) * random(length, seed=200, dtype=FLOAT).mul(2).exp()
    return torch.where(random(length, seed=300 + step, dtype=FLOAT) > 1.5, 0.0, values).to(dtype)


def pytorchs(values: Tensor, gradients: list[Tensor], clip: float = 1.0) -> Tensor:
    parameter = torch.nn.Parameter(values.clone())
    optimizer = torch.optim.AdamW([parameter], lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, foreach=False)
    for each in gradients:
        parameter.grad = each.float() * clip
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("clip", [1.0, 0.25])
@pytest.mark.parametrize(("dtype", "gradient_dtype"), [(FLOAT, FLOAT), (ROUGH, ROUGH), (ROUGH, FLOAT)])
@pytest.mark.parametrize("length", LENGTHS)
def test_masters_go_where_pytorchs_weights_go(length, dtype, gradient_dtype, clip):
    values = random(length, dtype=FLOAT)
    master, gradients = master_of(values, dtype), [gradient(length, step, gradient_dtype) for step in range(1, 5)]
    for step, each in enumerate(gradients, 1):
        before = each.clone()
        ops.adamw(master, each, settings(step, clip))
        assert torch.equal(each, before)
    expected = pytorchs(values, gradients, clip)
    torch.testing.assert_close(values_of(master), expected, rtol=1e-6, atol=1e-6)
    assert (values_of(master) - values).abs().max() > 0.1 * LR  # it went somewhere


def test_the_number_of_threads_changes_no_bit():
    values, found = random(5 * PERIOD + 3, dtype=FLOAT), []
    for number in (1, 2, 3):
        master = master_of(values, ROUGH, periods=2)
        with threads(number):
            ops.adamw(master, gradient(len(values), 1, ROUGH), settings(1))
        found.append((master.weight, master.low, master.mean, master.square))
    for other in found[1:]:
        assert all(map(torch.equal, other, found[0]))
