"""Attention, the engine and a training step on a GPU: a CPU's numbers to rounding, with two waits a step."""

import random
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from slimrl.config.loss import LossConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.inference.engine import Engine
from slimrl.inference.scheduler import Request
from slimrl.models.forward.attention import ATTENTION, LayerInputs
from slimrl.trainer.attention_blocks import BlockAttention
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from slimrl.types import Metrics, Sample, SamplingParams
from tests.tiny import FAMILIES, tiny_module
from tests.trainer.samples import random_samples
from tests.trainer.test_attention import WINDOWS, pack_of, visible_TT

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def module_on(device: torch.device, family: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    module = tiny_module(family, head_dim=16)
    module.set_attn_implementation(ATTENTION)
    return module.eval().to(device, dtype)


def train_step(module: nn.Module, loss: LossConfig) -> TrainStep:
    aux_losses = build_aux_losses(loss.resolve(), module, lambda: module_on(CUDA, "llama"))
    heads = {name: head for aux_loss in aux_losses for name, head in aux_loss.heads.items()}
    optimizer = MasterAdamW(module, OptimConfig(lr=1e-3), heads)
    config = TrainerConfig(loss=loss, micro_batch_tokens=300)
    return TrainStep(module, optimizer, config, seq_len=100, aux_losses=aux_losses)


def steps(module: nn.Module, num: int) -> list[Metrics]:
    step = train_step(module, LossConfig(type="grpo"))
    return [step(Batch(tuple(random_samples(seed)), 0.7), 1.0, version=0) for seed in range(num)]


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_are_those_of_a_cpu(family):
    there, here = module_on(CUDA, family), module_on(CPU, family)
    for ours, theirs in zip(steps(there, 3), steps(here, 3), strict=True):
        for name in ("loss/policy", "loss/entropy", "loss/clipped", "guard/mismatch_kl", "optim/grad_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=2e-3, abs=1e-5), name
    # AdamW's first updates are +-lr for every weight: those whose gradient is near 0 may go either way.
    for ours, theirs in zip(there.parameters(), here.parameters(), strict=True):
        differs = (ours.cpu() - theirs).abs() > 1e-4
        assert differs.float().mean() < 0.02


def test_bfloat16_weights_are_updated_as_on_a_cpu():
    optimizers = []
    for device in (CUDA, CPU):
        module = module_on(device, "llama", torch.bfloat16)
        optimizer = MasterAdamW(module, OptimConfig(lr=1e-2))
        for number in range(3):
            torch.manual_seed(number)
            loss = sum((torch.randn(p.shape).to(device, p.dtype) * p).sum() for p in module.parameters())
            loss.backward()
            optimizer.step(1.0)
        optimizers.append((optimizer.state_dict()["parameters"], module))
    (ours, module), (theirs, other) = optimizers
    for name, tensors in theirs.items():
        torch.testing.assert_close(ours[name]["master"].cpu(), tensors["master"], rtol=1e-4, atol=1e-6)
    same = [(a.cpu() == b).float().mean() for a, b in zip(module.parameters(), other.parameters(), strict=True)]
    assert min(same) > 0.98  # a last bit of the master may round the other way


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_waits_twice_for_the_gpu_however_many_packs_it_has(dtype):
    step = train_step(module_on(CUDA, "qwen3", dtype), LossConfig())
    batch = Batch(tuple(random_samples(1)), 0.7)
    step(batch, 1.0, version=0)  # compiles, which waits as well
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step(batch, 1.0, version=0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [f"{w.filename}:{w.lineno}" for w in caught if "synchronizing" in str(w.message)]
    assert len(waits) == 2, waits


@pytest.mark.parametrize("name", ["ppo", "aipo", "gspo", "cispo", "dapo"])
def test_each_loss_steps(name):
    loss = LossConfig(type=name, kl_beta=0.1)
    metrics = train_step(module_on(CUDA, "qwen3"), loss)(Batch(tuple(random_samples(1)), 0.7), 1.0, version=0)
    assert metrics["optim/grad_norm"] > 0 and not metrics["optim/skipped"]


def completions(engine: Engine, temperature: float) -> list[Request]:
    rng = random.Random(0)
    prompts = [[rng.randrange(3, 300) for _ in range(rng.choice([3, 40, 200]))] for _ in range(12)]
    prompts += [[*prompts[0], 7], prompts[1]]
    params = [SamplingParams(24, temperature=temperature, seed=seed) for seed in range(len(prompts))]
    requests = [engine.submit(*pair, lambda sampled: False) for pair in zip(prompts, params, strict=True)]
    while engine.busy:
        engine.step()
    return requests


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_a_cpu(family):
    here, there = (completions(Engine(module_on(d, family), frozenset(), 6, 320), 0.0) for d in (CPU, CUDA))
    for ours, theirs in zip(there, here, strict=True):
        assert ours.completion_ids == theirs.completion_ids
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-6), (torch.bfloat16, 0.01)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_trainer_computes_what_the_sampler_logged(family, dtype, most):
    module = module_on(CUDA, family, dtype)
    requests = completions(Engine(module, frozenset(), 6, 320), 1.0)
    samples = []
    for request in requests:
        prompt, sampled = len(request.prompt), len(request.logprobs)
        mask = (*[False] * prompt, *[True] * sampled)
        logprobs = (*[0.0] * prompt, *request.logprobs)
        samples.append(Sample((*request.prompt, *request.completion_ids), mask, logprobs, (1.0,) * len(mask), 0))
    metrics = train_step(module, LossConfig())(Batch(tuple(samples), 1.0), 1.0, version=0)
    assert metrics["guard/mismatch_kl"] < most


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("num_heads", "num_key_heads", "width"), [(4, 4, 16), (6, 2, 64)])
def test_values_and_gradients_are_those_of_masked_attention(num_heads, num_key_heads, width, window, dtype):
    pack = pack_of(1, repeats=8, device=CUDA)
    mask = visible_TT(pack, window)
    torch.manual_seed(0)
    shapes = [(1, heads, len(mask), width) for heads in (num_heads, num_key_heads, num_key_heads)]
    heads = [torch.randn(shape, device=CUDA, dtype=dtype, requires_grad=True) for shape in shapes]
    out = BlockAttention(pack).attend(LayerInputs(0, *heads, scale=0.3, window=window))
    exact = [head.detach().float().requires_grad_() for head in heads]
    expected = F.scaled_dot_product_attention(*exact, attn_mask=mask, scale=0.3, enable_gqa=True).transpose(1, 2)
    weight = torch.randn_like(expected)
    ours = [out, *torch.autograd.grad((out.float() * weight).sum(), heads)]
    theirs = [expected, *torch.autograd.grad((expected * weight).sum(), exact)]
    allowed = 2e-3 if dtype == torch.float32 else 0.06
    for found, wanted in zip(ours, theirs, strict=True):
        assert float((found.float() - wanted).abs().max()) < allowed * float(wanted.abs().max())
