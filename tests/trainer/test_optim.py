"""The optimizer on float32 masters, and the learning-rate schedule."""

import copy
import math

import pytest
import torch
from torch import nn

from slimrl.config.train import OptimConfig, ScheduleConfig
from slimrl.models.native import ops
from slimrl.trainer import optim
from slimrl.trainer.optim import MasterAdamW, schedule_factor

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def make_module(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module.to(dtype)


def backward(module: nn.Module, step: int) -> None:
    dtype = next(module.parameters()).dtype
    inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(step)).to(dtype)
    module(inputs).float().square().sum().backward()


def train(module: nn.Module, *steps: int, **optim: float) -> MasterAdamW:
    """Make an optimizer of the module, and a step with each of these gradients."""
    optimizer = MasterAdamW(module, OptimConfig(**{"lr": 0.01, **optim}))
    for step in steps:
        backward(module, step)
        optimizer.step(1.0)
    return optimizer


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def masters(optimizer: MasterAdamW) -> list[torch.Tensor]:
    return [state["master"] for state in optimizer.state_dict()["parameters"].values()]


def scalar_optimizer(dtype: torch.dtype, **optim: float) -> tuple[nn.Module, MasterAdamW]:
    """A module whose only weight is 1, and whose output is that weight times the input."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.ones_(module.weight)
    module.to(dtype)
    return module, MasterAdamW(module, OptimConfig(**optim))


def test_a_bfloat16_module_is_its_masters_rounded():
    module = make_module()
    optimizer = MasterAdamW(module, OptimConfig(lr=0.01))
    before = weights(module)
    for step in range(5):
        backward(module, step)
        optimizer.step(1.0)
        for parameter, master in zip(module.parameters(), masters(optimizer), strict=True):
            assert master.dtype == torch.float32
            step_size = torch.finfo(torch.bfloat16).eps * master.abs()
            assert bool(((parameter.float() - master).abs() <= step_size).all())
    assert all((a != b).any() for a, b in zip(before, weights(module), strict=True))


@BOTH
def test_working_in_pieces_changes_nothing(monkeypatch, dtype):
    def after() -> list[torch.Tensor]:
        module = make_module(dtype)
        optimizer = MasterAdamW(module, OptimConfig(lr=0.01))
        for micro_batch in range(3):
            backward(module, micro_batch)
        optimizer.step(1.0)
        return masters(optimizer)

    whole = after()
    monkeypatch.setattr(ops, "available", lambda tensor: False)  # the kernel has pieces of its own
    by_pytorch = after()
    monkeypatch.setattr(optim, "PIECE", 4)  # 30 weights: seven pieces and a half
    assert all(map(torch.equal, after(), by_pytorch))
    for kernel, other in zip(whole, by_pytorch, strict=True):
        torch.testing.assert_close(kernel, other, rtol=1e-6, atol=1e-7)


def test_updates_too_small_for_bfloat16_add_up():
    module, optimizer = scalar_optimizer(torch.bfloat16, lr=1e-4)
    for _ in range(100):
        module(torch.ones(1, 1, dtype=torch.bfloat16)).sum().backward()
        optimizer.step(1.0)
    assert masters(optimizer)[0].item() == pytest.approx(0.99, abs=1e-4)  # a constant gradient moves lr a step
    assert 0.98 < module.weight.item() < 1.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_the_share_of_weights_that_have_moved_is_that_of_the_step_they_have_gone(sign, share):
    """From 1 the next bfloat16 is 1 + 2^-7; rounded to nearest, either all or none of the weights would move."""
    module = nn.Linear(400, 500, bias=False).to(torch.bfloat16)
    nn.init.constant_(module.weight, sign)
    optimizer = MasterAdamW(module, OptimConfig())
    state = optimizer.state_dict()
    state["parameters"]["weight"]["master"].fill_(sign * (1 + share * 2**-7))
    optimizer.load_state_dict(state)  # writes the master back
    moved = module.weight != sign
    assert moved.float().mean().item() == pytest.approx(share, abs=0.005)
    assert set(module.weight[moved].tolist()) <= {sign * (1 + 2**-7)}


def test_what_bfloat16_can_represent_is_written_back_unchanged():
    numbers = torch.tensor([0.0, -0.0, 1.0, -3.5, 2.0**-130, 3.3895e38, -math.inf]).to(torch.bfloat16)
    module = nn.Linear(len(numbers), 1, bias=False).to(torch.bfloat16)
    module.weight.data.copy_(numbers[None])
    optimizer = MasterAdamW(module, OptimConfig())
    optimizer.load_state_dict(optimizer.state_dict())
    assert torch.equal(module.weight[0], numbers)


def test_gradients_of_micro_batches_add_up_in_float32():
    module, optimizer = scalar_optimizer(torch.bfloat16)
    for value in (1.0, 2**-10):  # 1 + 2^-10 is no bfloat16 number
        module(torch.full((1, 1), value, dtype=torch.bfloat16)).sum().backward()
    assert module.weight.grad is None
    assert optimizer.step(1.0)["optim/grad_norm"] == 1 + 2**-10


def test_in_float32_it_is_torchs_own_adamw_with_decay_on_matrices_alone():
    config = OptimConfig(lr=0.01, weight_decay=0.1, beta1=0.8, beta2=0.95, eps=1e-6, max_grad_norm=0.5)
    module = make_module(torch.float32)
    reference = copy.deepcopy(module)
    ours = MasterAdamW(module, config)
    groups = [
        {"params": [p for p in reference.parameters() if p.ndim == 2], "weight_decay": 0.1},
        {"params": [p for p in reference.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    theirs = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.95), eps=1e-6, fused=False, foreach=False)
    for step in range(4):
        backward(module, step)
        backward(reference, step)
        norm = nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
        theirs.step()
        theirs.zero_grad()
        assert ours.step(1.0)["optim/grad_norm"] == pytest.approx(float(norm))
        for a, b in zip(module.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_the_learning_rate_is_scaled_by_the_factor():
    for factor in (1.0, 0.25, 0.0):
        module, optimizer = scalar_optimizer(torch.float32, lr=0.1)
        module(torch.ones(1, 1)).sum().backward()
        assert optimizer.step(factor)["optim/lr"] == pytest.approx(0.1 * factor)
        assert module.weight.item() == pytest.approx(1 - 0.1 * factor)  # AdamW's first step is lr long


@BOTH
def test_a_restored_optimizer_goes_on_to_the_last_bit(dtype):
    module = make_module(dtype)
    optimizer = train(module, 0, 1, 2, weight_decay=0.1)
    saved = copy.deepcopy(optimizer.state_dict())

    other = make_module(dtype)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    restored = train(other, weight_decay=0.1)
    restored.load_state_dict(saved)
    for step in range(3, 6):
        assert all(map(torch.equal, module.parameters(), other.parameters()))
        for m, o in ((module, optimizer), (other, restored)):
            backward(m, step)
            o.step(0.5)
    assert all(map(torch.equal, masters(optimizer), masters(restored)))


def test_a_restored_optimizer_obeys_the_settings_of_today():
    module, optimizer = scalar_optimizer(torch.float32, lr=0.1)
    module(torch.ones(1, 1)).sum().backward()
    optimizer.step(1.0)
    saved = copy.deepcopy(optimizer.state_dict())
    today = {"lr": 0.1, "weight_decay": 0.5, "beta1": 0.0, "beta2": 0.5, "eps": 0.25}
    other, restored = scalar_optimizer(torch.float32, **today)
    restored.load_state_dict(saved)
    before = other.weight.item()
    other(torch.full((1, 1), 0.5)).sum().backward()
    restored.step(1.0)
    second_moment = (0.5 * 0.01 + 0.5 * 0.25) / (1 - 0.5**2)  # beta2 was 0.99 in the first step
    move = 0.5 / (second_moment**0.5 + 0.25)  # beta1 = 0: the gradient itself
    assert other.weight.item() == pytest.approx(before * (1 - 0.1 * 0.5) - 0.1 * move)


def test_a_state_of_another_model_is_refused():
    state = MasterAdamW(make_module(), OptimConfig()).state_dict()
    for other in (nn.Linear(6, 5), nn.Sequential(nn.Linear(6, 5))):
        with pytest.raises(KeyError):
            MasterAdamW(other, OptimConfig()).load_state_dict(state)
    state = MasterAdamW(nn.Linear(6, 5), OptimConfig()).state_dict()
    with pytest.raises(ValueError, match=r"shape \(5, 6\)"):
        MasterAdamW(nn.Linear(5, 6), OptimConfig()).load_state_dict(state)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@BOTH
def test_a_gradient_that_is_not_finite_changes_nothing(dtype, bad):
    module = make_module(dtype)
    optimizer = train(module, 0)
    before = weights(module)
    backward(module, 0)
    (module[0].weight.sum() * bad).backward()
    metrics = optimizer.step(1.0)
    assert not math.isfinite(metrics["optim/grad_norm"]) and metrics["optim/skipped"] == 1.0
    assert all(map(torch.equal, before, module.parameters()))
    backward(module, 2)
    assert optimizer.step(1.0)["optim/skipped"] == 0.0
    good_only = make_module(dtype)
    train(good_only, 0, 2)
    assert all(map(torch.equal, module.parameters(), good_only.parameters()))


@BOTH
def test_a_released_module_belongs_to_the_next_optimizer_alone(dtype):
    module = make_module(dtype)
    first = MasterAdamW(module, OptimConfig(lr=0.01))
    backward(module, 0)
    first.detach()
    assert all(parameter.grad is None for parameter in module.parameters())

    fresh = copy.deepcopy(module)
    for m in (module, fresh):
        train(m, 1)
    assert all(map(torch.equal, module.parameters(), fresh.parameters()))


def factors(max_steps: int, **schedule: object) -> list[float]:
    config = ScheduleConfig(**schedule)
    return [schedule_factor(step, max_steps, config) for step in range(max_steps)]


def test_schedules_by_hand():
    assert factors(6, type="constant", warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert factors(2, type="constant") == [1.0, 1.0]
    assert factors(4, type="linear") == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert factors(6, type="linear", warmup_steps=2, min_lr_ratio=0.2) == pytest.approx([0.5, 1.0, 1.0, 0.8, 0.6, 0.4])
    values = factors(8, type="cosine", min_lr_ratio=0.1)
    assert values[0] == 1.0 and values[4] == pytest.approx(0.55) and values == sorted(values, reverse=True)
    assert values[2] - values[4] == pytest.approx(values[4] - values[6])
    assert schedule_factor(8, 8, ScheduleConfig(type="cosine", min_lr_ratio=0.1)) == pytest.approx(0.1)
    for type_ in ("constant", "linear", "cosine"):  # a warm-up as long as the run divides by nothing
        assert factors(3, type=type_, warmup_steps=3) == pytest.approx([1 / 3, 2 / 3, 1.0])
