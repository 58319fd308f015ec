"""A whole training step on `cuda`, by fake tensors: no devices are mixed, and it waits for the GPU where it must."""

from itertools import product

import pytest
import torch
from torch import nn

from slimrl.config.loss import PRESETS, LossConfig
from slimrl.config.model import LoraConfig
from slimrl.config.run import SFTConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.models.chat.template import ChatFormat
from slimrl.models.load import Policy
from slimrl.models.lora import adapt, keep_merged
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.checkpoint import fresh_progress
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.sft.train import backward
from slimrl.trainer.state import TrainState
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from tests.fake_cuda import CUDA, Alone, Waits, fake_cuda
from tests.tiny import FAMILIES, tiny_tokenizer
from tests.trainer.samples import policy_module, random_samples

# What a step waits for: the totals of all packs at once, which the guard compares with its bounds before the update,
# and the norm of the gradient, by which the update is clipped or left out.
ALWAYS = ["trainer/step.py _total", "trainer/optim.py _gradient_norm"]


def module_on_cuda(family: str) -> nn.Module:
    with CUDA:
        return policy_module(family)


def waits_of_step(module: nn.Module, loss: LossConfig, waits: Waits) -> list[str]:
    """The places that wait for the GPU during one step of several packs."""
    aux_losses = build_aux_losses(loss.resolve(), module, lambda: module_on_cuda("llama"))
    heads = {name: head for aux_loss in aux_losses for name, head in aux_loss.heads.items()}
    optimizer = MasterAdamW(module, OptimConfig(), heads)
    config = TrainerConfig(loss=loss, micro_batch_tokens=150)
    step = TrainStep(module, optimizer, config, seq_len=100, aux_losses=aux_losses, ranks=Alone())
    waits.places.clear()
    step(Batch(tuple(random_samples(1)), 0.7), 1.0, 0)
    return waits.places


CASES = [
    *(
        pytest.param(*pair, "aipo", marks=pytest.mark.slow)
        for pair in product(FAMILIES, (torch.float32, torch.bfloat16))
    ),
    *(pytest.param("qwen3", torch.float32, name, marks=pytest.mark.nightly) for name in PRESETS),
]


@pytest.mark.parametrize(("family", "dtype", "loss"), CASES)
def test_a_step_waits_twice_for_the_gpu_however_many_packs_it_has(family, dtype, loss):
    with fake_cuda() as waits:
        torch.set_default_dtype(dtype)
        try:
            module = module_on_cuda(family)
        finally:
            torch.set_default_dtype(torch.float32)
        assert next(module.parameters()).dtype == dtype
        assert waits_of_step(module, LossConfig(type=loss), waits) == ALWAYS


@pytest.mark.slow
def test_so_does_a_step_of_an_adapter(monkeypatch):
    # PEFT makes the pair where it belongs; moving it would replace its tensors, which fake ones do not allow.
    monkeypatch.setattr(nn.Module, "to", lambda module, *_, **__: module)
    with fake_cuda() as waits:
        module = module_on_cuda("qwen3")
        with CUDA:
            adapt(module, LoraConfig(rank=4), "tiny")
        keep_merged(module)
        assert waits_of_step(module, LossConfig(), waits) == ALWAYS


@pytest.mark.slow
def test_a_reference_waits_once_more_and_a_value_head_in_each_pack():
    """Each advantage depends on the one behind it. What is read is small: three numbers for each trained token."""
    with fake_cuda() as waits:
        found = waits_of_step(module_on_cuda("qwen3"), LossConfig(kl_beta=0.1), waits)
        assert found == [ALWAYS[0], "trainer/aux_losses.py take", ALWAYS[1]]
        found = waits_of_step(module_on_cuda("qwen3"), LossConfig(type="ppo", advantage="gae"), waits)
    assert set(found) == {*ALWAYS, "trainer/aux_losses.py gae", "trainer/aux_losses.py take"}
    assert found.count(ALWAYS[0]) == found.count(ALWAYS[1]) == 1


@pytest.mark.slow
def test_a_supervised_step_waits_for_its_loss_alone():
    with fake_cuda() as waits:
        module, tokenizer = module_on_cuda("llama"), tiny_tokenizer()
        policy = Policy(module, tokenizer, ChatFormat(tokenizer), "tiny", torch.float32, CUDA)
        state = TrainState(policy, MasterAdamW(module, OptimConfig()), fresh_progress(torch.float32))
        waits.places.clear()
        backward(
            state, SFTConfig(data={"type": "file", "path": "none.jsonl"}, micro_batch_tokens=150), random_samples(1)
        )
        assert waits.places == ["trainer/sft/train.py backward"]
