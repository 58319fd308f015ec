"""Training adapters: what is kept and saved is small, killed runs resume exactly, and sampler and trainer agree."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from slimrl.config.model import ModelConfig
from slimrl.config.train import OptimConfig
from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.models.load import load_policy
from slimrl.models.lora import merge_parameters, merge_weight
from slimrl.monitor.sinks import JsonlSink, Monitor
from slimrl.trainer.fake import fake_batch
from slimrl.trainer.rl.train import train
from slimrl.trainer.state import TrainState, start
from slimrl.transport.base import Batch
from slimrl.types import Sample, SamplingParams
from tests.models.native.cases import skip_without_kernels
from tests.tiny import tiny_model_dir
from tests.trainer.test_rl_train import fake_config, lines_of, run_steps

STEPS = 6


def state_of(model: Path, output_dir: Path, dtype: str = "bfloat16", rank: int = 4, resume: bool = False) -> TrainState:
    config = {"name": str(model), "dtype": dtype, "device": "cpu", "num_threads": 1, "lora": {"rank": rank}}
    return start(load_policy(ModelConfig.model_validate(config)), OptimConfig(lr=1e-2), output_dir, resume)


def run(state: TrainState, output_dir: Path, stop_before: int = -1) -> TrainState:
    run_steps(fake_config(output_dir), state, stop_before)
    return state


def numbers(module: nn.Module) -> list[Tensor]:
    """Parameters and, where the fast forwards run, the merged matrices."""
    return [*module.parameters(), *module.buffers()]


# By the fast forwards, and by PEFT's.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("llama", "bfloat16"),
        *(pytest.param(*one, marks=pytest.mark.nightly) for one in (("llama", "float32"), ("gemma3", "bfloat16"))),
    ],
)
def test_a_killed_run_resumes_to_the_same_numbers_and_weights(tmp_path: Path, family: str, dtype: str) -> None:
    model, whole, halves = tiny_model_dir(tmp_path, family), tmp_path / "whole", tmp_path / "halves"
    expected = run(state_of(model, whole, dtype), whole)
    with pytest.raises(KeyboardInterrupt):
        run(state_of(model, halves, dtype), halves, stop_before=5)
    resumed = run(state_of(model, halves, dtype, resume=True), halves)
    assert lines_of(halves) == lines_of(whole)
    pairs = list(zip(numbers(resumed.policy.module), numbers(expected.policy.module), strict=True))
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


@pytest.mark.slow
def test_the_base_stays_and_what_is_merged_follows_the_pairs(tmp_path: Path, tiny_dir: Path) -> None:
    skip_without_kernels()
    state = state_of(tiny_dir, tmp_path)
    module = state.policy.module
    frozen = {name: p.detach().clone() for name, p in module.named_parameters() if not p.requires_grad}
    run(state, tmp_path)
    after = dict(module.named_parameters())
    assert all(torch.equal(tensor, after[name]) for name, tensor in frozen.items())
    layer = module.get_decoder().layers[1].mlp.down_proj
    pair = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert pair[1].any()
    merged = merge_weight(layer.base_layer.weight, *pair, 32 / 4)
    assert torch.equal(layer.get_buffer("merged_weight"), merged) and not torch.equal(merged, layer.base_layer.weight)
    saved = load_policy(ModelConfig(name=str(tmp_path / "weights" / f"step_{STEPS}"), dtype="bfloat16", device="cpu"))
    expected = merge_parameters(module)
    assert all(torch.equal(parameter, expected[name]) for name, parameter in saved.module.named_parameters())


@pytest.mark.slow
def test_a_checkpoint_holds_the_pairs_alone_and_is_of_no_other_rank(tmp_path: Path, tiny_dir: Path) -> None:
    state = run(state_of(tiny_dir, tmp_path), tmp_path)
    masters = state.optimizer.state_dict()["parameters"]
    assert len(masters) == 2 * 2 * 7 and all(".lora_" in name for name in masters)
    for rank in (0, 8):
        with pytest.raises(UserError, match="does not fit this model"):
            state_of(tiny_dir, tmp_path, rank=rank, resume=True)


@pytest.mark.parametrize("family", ["llama", pytest.param("gemma3", marks=pytest.mark.slow)])
def test_what_the_engine_samples_is_what_the_trainer_computes(tmp_path: Path, family: str) -> None:
    state = state_of(tiny_model_dir(tmp_path, family), tmp_path, "float32")
    engine = Engine(state.policy.module, frozenset(), 2, 64)
    config = fake_config(tmp_path)

    def receive(step: int) -> Batch:
        batch = fake_batch(config.data, 300, 0, step)
        return replace(batch, samples=tuple(sampled(engine, sample, step) for sample in batch.samples))

    with Monitor([JsonlSink(tmp_path / "metrics.jsonl", 0)]) as monitor:
        train(state, config, receive, engine.publish, monitor)
    lines = [line for _, line in lines_of(tmp_path)]
    assert all(line["guard/max_logprob_gap"] < 1e-3 for line in lines)
    assert sum(line["loss/ratio_max"] for line in lines) / STEPS == pytest.approx(1.0, abs=1e-3)


def sampled(engine: Engine, sample: Sample, step: int) -> Sample:
    """The sample with a completion and log-probabilities of the engine's."""
    prompt = list(sample.token_ids_T[: sample.loss_mask_T.index(True)])
    request = engine.submit(prompt, SamplingParams(max_tokens=5, seed=step), lambda tokens: False)
    while engine.busy:
        engine.step()
    tokens = (*prompt, *request.completion_ids)
    logprobs = (*([0.0] * len(prompt)), *request.logprobs)
    return replace(sample, token_ids_T=tokens, logprobs_T=logprobs, version=step)
