"""The supervised loop on a tiny model."""

import json
from pathlib import Path

import pytest
import torch

from slimrl import cli
from slimrl.config.data import ExpertDataConfig, FileDataConfig
from slimrl.config.rollout import EnvConfig
from slimrl.config.run import CkptConfig, SFTConfig
from slimrl.config.train import OptimConfig
from slimrl.launch.supervised import load_demonstrations, load_experts
from slimrl.models.chat.template import ChatFormat
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import JsonlSink, Monitor, read_metrics
from slimrl.trainer.sft.train import Conversations, backward, train, validate
from slimrl.trainer.state import start
from tests.reproducible import is_reproducible
from tests.tiny import tiny_tokenizer
from tests.trainer.policies import tiny_policy, tiny_state
from tests.trainer.samples import (
    assert_gradients_equal,
    gradients,
    random_samples,
    reference_logprobs,
    reference_module,
)


def make_config(output_dir, data=None, **changes) -> SFTConfig:
    settings = {
        "max_steps": 6,
        "seq_len": 200,
        "batch_size": 4,
        "micro_batch_tokens": 300,
        "val_interval_steps": 2,
        "val_num_examples": 3,
        "output_dir": str(output_dir),
        "optim": OptimConfig(lr=3e-3),
        "ckpt": CkptConfig(interval_steps=3),
        "data": data or ExpertDataConfig(env=EnvConfig(id="reverse-text", args={"num_train": 9, "num_test": 4})),
    }
    return SFTConfig(**(settings | changes))


def demonstrations(config: SFTConfig, chat: ChatFormat) -> Conversations:
    return load_demonstrations(config, load_experts(config, RunConsole()), chat, RunConsole())


def run(config: SFTConfig, resume: bool = False, stop_before: int | None = None):
    """The metrics of every step; `stop_before` kills the run there."""
    policy = tiny_policy()
    conversations = demonstrations(config, policy.chat)

    def of_step(step):
        if step == stop_before:
            raise KeyboardInterrupt
        return conversations.of_step(step)

    state = start(policy, config.optim, Path(config.output_dir), resume)
    with Monitor([JsonlSink(Path(config.output_dir) / "metrics.jsonl", state.progress.step)]) as monitor:
        train(state, config, Conversations(of_step, conversations.validation), monitor)
    return state


def metrics_of(config):
    lines = read_metrics(Path(config.output_dir) / "metrics.jsonl")
    return [(step, {k: v for k, v in line.items() if is_reproducible(k)}) for step, line in lines]


def test_the_loss_falls_in_training_and_on_held_out_demonstrations(tmp_path):
    config = make_config(tmp_path, max_steps=30, val_interval_steps=0)
    run(config)
    lines = [line for _, line in metrics_of(config)]
    assert lines[-2]["sft/loss"] < 0.6 * lines[0]["sft/loss"]
    assert lines[-1]["sft/val_loss"] < 0.6 * lines[0]["sft/val_loss"]


def test_validates_before_after_and_at_the_interval_with_the_weights_before_the_step(tmp_path):
    short, longer = make_config(tmp_path / "short", max_steps=2), make_config(tmp_path / "longer")
    run(short)
    run(longer)
    lines = metrics_of(longer)
    assert [step for step, line in lines if "sft/loss" in line] == list(range(6))
    assert [step for step, line in lines if "sft/val_loss" in line] == [0, 2, 4, 6]
    after_two = [[line["sft/val_loss"] for step, line in metrics_of(c) if step == 2] for c in (short, longer)]
    assert after_two[0] == after_two[1]


@pytest.mark.nightly
@pytest.mark.parametrize("source", ["expert", "file"])
def test_a_killed_run_resumes_to_the_same_numbers_and_weights(tmp_path, source):
    data = None
    if source == "file":
        lines = [
            {"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}!"}]}
            for n in range(20)
        ]
        (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, lines)))
        data = FileDataConfig(path=str(tmp_path / "chats.jsonl"), val_fraction=0.3)
    whole = make_config(tmp_path / "whole", data)
    expected = run(whole)
    halves = make_config(tmp_path / "halves", data)
    with pytest.raises(KeyboardInterrupt):
        run(halves, stop_before=5)
    resumed = run(halves, resume=True)
    assert metrics_of(halves) == metrics_of(whole)
    assert len(metrics_of(whole)) == 6 + 1
    assert all(map(torch.equal, resumed.policy.module.parameters(), expected.policy.module.parameters()))


def test_an_epoch_has_every_conversation_once_and_the_next_one_another_order(tmp_path):
    config = make_config(tmp_path, batch_size=3)
    conversations = demonstrations(config, tiny_policy().chat)
    steps = [[sample.token_ids_T for sample in conversations.of_step(step)] for step in range(6)]
    first, second = ([ids for step in steps[begin : begin + 3] for ids in step] for begin in (0, 3))
    assert len(set(first)) == 9
    assert set(first) == set(second)
    assert first != second
    sample = conversations.of_step(0)[0]  # of which only the assistant's words are trained
    words = [token for token, mask in zip(sample.token_ids_T, sample.loss_mask_T, strict=True) if mask]
    text = tiny_tokenizer().decode(words)
    assert text.startswith("<reversed_text>") and text.endswith("</reversed_text><|im_end|>")


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch_tokens", [1, 60, 10_000])
def test_loss_and_gradient_are_the_mean_over_tokens_however_they_are_split(tmp_path, micro_batch_tokens):
    samples, state, reference = random_samples(2), tiny_state(), reference_module("llama")
    state.optimizer.detach()  # the gradients stay in the module
    config = make_config(tmp_path, micro_batch_tokens=micro_batch_tokens)
    mean = -torch.cat(reference_logprobs(reference, samples)).mean()
    mean.backward()
    metrics = backward(state, config, samples)
    assert metrics["sft/loss"] == pytest.approx(mean.item(), rel=1e-5)
    assert metrics["sft/tokens"] == sum(sum(sample.loss_mask_T) for sample in samples)
    assert_gradients_equal(gradients(state.policy.module), gradients(reference))
    assert validate(state, config, samples) == pytest.approx(mean.item(), rel=1e-5)
    assert all(parameter.grad is None for parameter in state.policy.module.parameters())


def test_a_missing_expert_is_refused_before_the_model_is_loaded(tmp_path, capsys):
    (tmp_path / "mute.py").write_text(
        "from slimrl.types import Task, Taskset\n\n\nclass Mute(Taskset):\n"
        '    def tasks(self, split):\n        return [Task(f"{split} 1", {})]\n\n'
        "    def environment(self, task):\n        raise AssertionError\n"
    )
    words = ["--data.type", "expert", "--data.env.id", f"{tmp_path}/mute.py:Mute", "--model.name", "smollm2-135m"]
    assert cli.run(["sft", *words, "--max_steps", "1", "--output_dir", str(tmp_path / "run")]) == 2
    found = capsys.readouterr()
    assert 'Mute has no script "expert"' in found.err and "threads" not in found.out + found.err
