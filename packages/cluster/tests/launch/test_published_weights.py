"""How a trainer's weights reach samplers, and how the trainer waits for its batches meanwhile."""

import os
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from packages.cluster.tests.helpers import joined, roster_of, wait_until
from slimrl.config.model import LoraConfig, ModelConfig
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.models.adapter import is_adapter
from slimrl.models.load import load_policy
from slimrl.transport.base import Batch
from slimrl.types import Sample
from slimrl_cluster.launch import elsewhere, weights
from slimrl_cluster.launch.elsewhere import IT_IS_THERE, WAIT_ON, SamplingElsewhere
from slimrl_cluster.launch.weights import PublishedWeights, SampledWeights, sampler_addresses
from slimrl_cluster.transport.batch_file import write_batch

BATCH = Batch((Sample((1, 2), (False, True), (0.0, -0.5), (0.0, 1.0), 0),), 1.0)
AT_ADDRESS = ("--inference.base_url", "http://127.0.0.1:1", "--warmup.max_steps", "0")


def parts_of(output_dir: Path, *argv: str) -> Any:
    flags = ["--orchestrator.env.0.id", "reverse-text", "--output_dir", str(output_dir), *argv]
    policy = SimpleNamespace(module=torch.nn.Module())
    ranks = SimpleNamespace(leads=True, of_first=lambda value: value, united=nullcontext)
    config = load(RLConfig, flags, {}).config
    return SimpleNamespace(config=config, policy=policy, ranks=ranks, output_dir=output_dir)


def test_where_samplers_are_is_what_they_say_and_each_process_has_a_name_of_its_own(tmp_path):
    config, roster = parts_of(tmp_path).config, roster_of(tmp_path)
    with joined(tmp_path, "inference", address="http://a"), joined(tmp_path, "inference", address="http://b"):
        found = sampler_addresses(config, roster)
    assert [one.base_url for one in found.values()] == ["http://a", "http://b"]
    assert [name.partition(" ")[0] for name in found] == ["inference-0,", "inference-1,"]
    assert all(f"process {os.getpid()} on " in name for name in found)
    [at_address] = sampler_addresses(parts_of(tmp_path, *AT_ADDRESS).config, roster).values()
    assert at_address.base_url == "http://127.0.0.1:1"


def test_each_version_is_written_once(tmp_path, monkeypatch):
    saved: list[Path] = []
    monkeypatch.setattr(weights, "save_weights", lambda policy, path, leads, base: saved.append(path))
    trainer = PublishedWeights(parts_of(tmp_path), roster_of(tmp_path, "trainer"))
    for version in (0, 0, 1):
        trainer.publish(version)
    assert saved == [RunDir(tmp_path).sent_weights_of(version) for version in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "is_alone"), [((), True), (("--inference.backend", "vllm"), False), (AT_ADDRESS, False)]
)
def test_an_adapter_alone_is_for_samplers_that_have_the_model_under_it(
    more: Sequence[str], is_alone: bool, tiny_dir, tmp_path
):
    parts = parts_of(tmp_path, *more)
    parts.policy = load_policy(ModelConfig(name=str(tiny_dir), device="cpu", num_threads=1, lora=LoraConfig(rank=4)))
    PublishedWeights(parts, roster_of(tmp_path, "trainer")).publish(0)
    assert is_adapter(RunDir(tmp_path).sent_weights_of(0)) == is_alone


def sampling_elsewhere(output_dir: Path, timeout_s: float = 20.0) -> tuple[SamplingElsewhere, list[str]]:
    """Return the trainer's end of sampling, and a list of the values that the first rank sends to the others."""
    parts, told, roster = parts_of(output_dir), list[str](), roster_of(output_dir, "trainer", timeout_s)
    parts.ranks.of_first = lambda value: (told.append(value), value)[1]
    return SamplingElsewhere(parts, roster, PublishedWeights(parts, roster), 0), told


def test_while_the_first_rank_waits_for_a_batch_the_others_hear_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(elsewhere, "PULSE_S", 0.03)
    here, told = sampling_elsewhere(tmp_path)
    orchestrator = threading.Timer(0.3, write_batch, [BATCH, RunDir(tmp_path).batch_of(0)])
    orchestrator.start()
    batch = here.receive(0)
    orchestrator.join()
    assert batch.samples == BATCH.samples and batch.metrics["time/wait_batch_s"] > 0.1
    assert told[-1] == IT_IS_THERE and len(told) > 2 and set(told[:-1]) == {WAIT_ON}


def test_a_batch_that_does_not_come_is_an_error_in_all_ranks(tmp_path):
    here, told = sampling_elsewhere(tmp_path, timeout_s=0.1)
    with pytest.raises(UserError, match="in vain for the orchestrator's batch of step 0"):
        here.receive(0)
    assert len(told) == 1 and "in vain" in told[0]


def test_the_other_ranks_do_what_the_first_says(tmp_path):
    here, _ = sampling_elsewhere(tmp_path)
    write_batch(BATCH, RunDir(tmp_path).batch_of(0))
    words = iter([WAIT_ON, WAIT_ON, IT_IS_THERE, WAIT_ON, "the orchestrator has ended"])
    here.parts.ranks.leads, here.parts.ranks.of_first = False, lambda value: next(words)
    assert here.receive(0).samples == BATCH.samples
    with pytest.raises(UserError, match="the orchestrator has ended"):
        here.receive(1)


class Taking:
    """The client of the samplers, which keeps what it was given."""

    def __init__(self, failure: str = "") -> None:
        self.taken: list[Any] = []
        self._failure = failure

    def update_weights(self, directory: Path, version: int) -> None:
        if self._failure and self.taken:
            raise UserError(self._failure)
        self.taken.append((directory.name, version))


def sampled(output_dir: Path, client: Any) -> SampledWeights:
    RunDir(output_dir).sent_weights_of(0).mkdir(parents=True)
    given = SampledWeights(roster_of(output_dir), client)
    given.await_version(0)
    return given


def test_samplers_take_each_new_version_in_the_middle_of_a_batch(tmp_path):
    client = Taking()
    with sampled(tmp_path, client).keep_new():
        RunDir(tmp_path).sent_weights_of(2).mkdir()
        wait_until(lambda: len(client.taken) == 2)
    assert client.taken == [("step_0", 0), ("step_2", 2)]


def test_weights_that_are_refused_in_the_middle_of_a_batch_are_the_cause_of_what_follows(tmp_path):
    given = sampled(tmp_path, Taking("no room"))

    def make_a_batch() -> None:
        with given.keep_new():
            RunDir(tmp_path).sent_weights_of(1).mkdir()
            wait_until(lambda: given._failure)
            raise UserError("nobody samples")

    with pytest.raises(UserError, match="no room"):
        make_a_batch()
