"""The RL loop on a tiny model: what it logs and publishes, that it resumes exactly, and that it learns."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slimrl.config.data import FakeDataConfig
from slimrl.config.loss import PRESETS, LossConfig
from slimrl.config.rollout import EnvConfig, LimitsConfig, OrchestratorConfig, SamplingConfig
from slimrl.config.run import CkptConfig, RLConfig, TrainerOnlyConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.monitor.sinks import JsonlSink, Monitor, read_metrics
from slimrl.orchestrator.orchestrator import Orchestrator
from slimrl.rollout.episode import RolloutContext
from slimrl.trainer.checkpoint import read_progress
from slimrl.trainer.fake import fake_batch
from slimrl.trainer.rl.train import train
from slimrl.trainer.state import TrainState, start
from slimrl.transport.base import Batch
from slimrl.types import Turn
from tests.reproducible import is_reproducible
from tests.rollout.scripted import OneTask, user
from tests.trainer.policies import tiny_policy, tiny_state


def fake_config(output_dir: Path, loss: str = "aipo") -> TrainerOnlyConfig:
    return TrainerOnlyConfig(
        max_steps=6,
        seq_len=64,
        output_dir=str(output_dir),
        trainer=TrainerConfig(optim=OptimConfig(lr=1e-3), loss=LossConfig(type=loss), micro_batch_tokens=64),
        data=FakeDataConfig(batch_size=4, rollouts_per_example=2, prompt_len=6, completion_len=5),
        ckpt=CkptConfig(interval_steps=3),
    )


def run_fake(config: TrainerOnlyConfig, dtype=torch.float32, resume: bool = False, stop_before: int = -1):
    state = start(tiny_policy(dtype=dtype), config.trainer.optim, Path(config.output_dir), resume)
    return state, run_steps(config, state, stop_before)


def run_steps(config: TrainerOnlyConfig, state: TrainState, stop_before: int = -1) -> list[int]:
    """Train on made-up batches, and return the published versions. `stop_before` kills the run there."""
    published: list[int] = []

    def receive(step: int) -> Batch:
        if step == stop_before:
            raise KeyboardInterrupt
        return fake_batch(config.data, 300, 0, step)

    with Monitor([JsonlSink(Path(config.output_dir) / "metrics.jsonl", state.progress.step)]) as monitor:
        train(state, config, receive, published.append, monitor)
    return published


def lines_of(output_dir: Path):
    return [
        (step, {name: value for name, value in line.items() if is_reproducible(name)})
        for step, line in read_metrics(output_dir / "metrics.jsonl")
    ]


def test_every_step_is_logged_and_every_version_published(tmp_path):
    state, published = run_fake(fake_config(tmp_path))
    assert published == [0, 1, 2, 3, 4, 5, 6]
    assert state.progress.step == 6
    lines = lines_of(tmp_path)
    assert [step for step, _ in lines] == list(range(6))
    assert [line["version/policy"] for _, line in lines] == list(range(6))
    assert all(line["loss/tokens"] == 20 for _, line in lines)
    assert (tmp_path / "weights" / "step_6" / "model.safetensors").is_file()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_killed_run_resumes_to_the_same_numbers_and_weights(tmp_path, dtype):
    whole, halves = fake_config(tmp_path / "whole"), fake_config(tmp_path / "halves")
    expected, _ = run_fake(whole, dtype)
    with pytest.raises(KeyboardInterrupt):
        run_fake(halves, dtype, stop_before=5)
    resumed, published = run_fake(halves, dtype, resume=True)
    assert published == [3, 4, 5, 6]
    assert lines_of(tmp_path / "halves") == lines_of(tmp_path / "whole")
    assert all(map(torch.equal, resumed.policy.module.parameters(), expected.policy.module.parameters()))


def test_a_step_without_samples_is_logged_and_saved_and_changes_no_weight(tmp_path):
    def receive(step: int) -> Batch:
        return Batch((), 1.0, {"reward/mean": 0.5}, orchestrator_state={"tasks": [step]})

    config, state = fake_config(tmp_path), tiny_state()
    before = [parameter.detach().clone() for parameter in state.policy.module.parameters()]
    with Monitor([JsonlSink(tmp_path / "metrics.jsonl", 0)]) as monitor:
        train(state, config, receive, lambda version: None, monitor)
    kept = read_progress(tmp_path)
    assert kept and kept.orchestrator_state == {"tasks": [5]}
    assert [line["reward/mean"] for _, line in lines_of(tmp_path)] == [0.5] * 6
    assert all(map(torch.equal, before, state.policy.module.parameters()))


def test_what_the_guard_saw_is_logged_before_the_run_stops(tmp_path):
    config, state = fake_config(tmp_path), tiny_state()

    def receive(step: int) -> Batch:
        made_up = fake_batch(config.data, 300, 0, step)
        fresh = tuple(replace(sample, version=step) for sample in made_up.samples)
        return replace(made_up, samples=fresh if step == 1 else made_up.samples, metrics={"reward/mean": 0.5})

    with Monitor([JsonlSink(tmp_path / "metrics.jsonl", 0)]) as monitor, pytest.raises(UserError, match="disagree"):
        train(state, config, receive, lambda version: None, monitor)
    [_, (step, line)] = lines_of(tmp_path)
    assert step == state.progress.step == 1
    assert line["reward/mean"] == 0.5
    assert line["guard/mismatch_kl"] > config.trainer.guard.max_mismatch_kl


class Letters:
    """The reward is the share of letters in a reply of a few characters: a policy of random weights can learn it."""

    def __init__(self, task) -> None:
        self._task = task

    async def start(self):
        return [user("letters, please")]

    async def step(self, reply):
        letters = sum(character.isascii() and character.isalpha() for character in reply)
        return Turn(done=True, reward=letters / max(1, len(reply)))


def rl_config(output_dir: Path, loss: str) -> RLConfig:
    return RLConfig(
        max_steps=9,
        seq_len=96,
        output_dir=str(output_dir),
        orchestrator=OrchestratorConfig(
            env=[EnvConfig(id="letters")],
            batch_size=32,
            rollouts_per_example=16,
            sampling=SamplingConfig(max_tokens=4),
        ),
        trainer=TrainerConfig(optim=OptimConfig(lr=0.02), loss=LossConfig(type=loss)),
        ckpt=CkptConfig(interval_steps=0),
    )


def run_rl(config: RLConfig) -> list[dict[str, float]]:
    state = start(tiny_policy(), config.trainer.optim, Path(config.output_dir), resume=False)
    chat = state.policy.chat
    engine = Engine(state.policy.module, chat.stop_ids, num_slots=32, capacity=config.seq_len)
    context = RolloutContext(LocalClient(engine, chat.text), chat, LimitsConfig(max_turns=1), config.seq_len, 32)
    loss = config.trainer.loss.resolve()
    taskset = OneTask(Letters, num_tasks=5)
    orchestrator = Orchestrator([taskset], context, config.orchestrator, loss, 0, lambda step, records: None)
    with Monitor([JsonlSink(Path(config.output_dir) / "metrics.jsonl", 0)]) as monitor:
        train(state, config, orchestrator.collect, engine.publish, monitor)
    return [line for _, line in lines_of(Path(config.output_dir))]


FIRST = ("aipo", "gspo")  # the default, and one whose ratio is that of a sequence


@pytest.mark.parametrize("loss", [pytest.param(p, marks=[] if p in FIRST else [pytest.mark.slow]) for p in PRESETS])
def test_rl_raises_the_reward_and_stays_on_policy(tmp_path, loss):
    lines = run_rl(rl_config(tmp_path, loss))
    early, late = (sum(line["reward/mean"] for line in part) / 3 for part in (lines[:3], lines[-3:]))
    assert late > early + 0.2
    assert max(line["guard/max_logprob_gap"] for line in lines) < 1e-4
    assert max(line["loss/ratio_max"] for line in lines) < 1.0001


def test_the_same_seed_gives_the_same_run_to_the_last_bit(tmp_path):
    first, second = (run_rl(rl_config(tmp_path / name, "aipo")) for name in ("a", "b"))
    assert first == second
