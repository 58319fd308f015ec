"""How a trainer's weights reach samplers that come and go, and how the trainer waits for its batches meanwhile."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from packages.cluster.tests.helpers import joined, roster_of, wait_until
from slimrl.config.deployment import DeploymentConfig
from slimrl.config.model import LoraConfig, ModelConfig
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.models.adapter import is_adapter
from slimrl.models.load import load_policy
from slimrl.models.lora import AdapterForm, base_fingerprint
from slimrl.transport.base import Batch
from slimrl.types import Sample
from slimrl_cluster.launch import elsewhere, weights
from slimrl_cluster.launch.elsewhere import IT_IS_THERE, SEND_AGAIN, WAIT_ON, SamplingElsewhere
from slimrl_cluster.launch.weights import PublishedWeights, SampledWeights, sampler_addresses
from slimrl_cluster.transport.batch_file import write_batch
from slimrl_cluster.transport.roster import Roster, newest_version

BATCH = Batch((Sample((1, 2), (False, True), (0.0, -0.5), (0.0, 1.0), 0),), 1.0)
AT_ADDRESS = ("--inference.base_url", "http://127.0.0.1:1", "--warmup.max_steps", "0")


class FakeClient:
    """A client of a sampler, which is known by its address."""

    def __init__(self, address: Any, stop_ids: frozenset[int], seq_len: int) -> None:
        self.url, self.is_closed = address.base_url, threading.Event()

    def check(self) -> None:
        pass

    def wait(self, work: None) -> None:
        pass

    def close(self) -> None:
        self.is_closed.set()


class Samplers:
    """The samplers in the run's directory, and all that was sent to them. `trouble` is called before, with the
    clients."""

    def __init__(self, output_dir: Path) -> None:
        self._output_dir, self._there = output_dir, dict[str, ExitStack]()
        self.sent: list[tuple[list[str], int]] = []
        self.num_groups = 0
        self.trouble: Callable[[Sequence[FakeClient]], None] = lambda clients: None

    def come(self, address: str) -> None:
        self._there[address] = ExitStack()
        self._there[address].enter_context(joined(self._output_dir, "inference", address=address))

    def go(self, address: str) -> None:
        self._there.pop(address).close()

    def group(self, clients: Sequence[FakeClient], *_: Any) -> Any:
        """Stands for WeightSender."""
        assert clients
        self.num_groups += 1

        def send(tensors: Any, version: int, adapter: Any) -> None:
            self.trouble(clients)
            self.sent.append((sorted(client.url for client in clients), version))

        return nullcontext(SimpleNamespace(send=send))


@pytest.fixture
def samplers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Samplers]:
    made = Samplers(tmp_path)
    monkeypatch.setattr(weights, "LOOK_S", 0.02)
    monkeypatch.setattr(Roster, "loss_s", 0.02)
    monkeypatch.setattr(weights, "RemoteClient", FakeClient)
    monkeypatch.setattr(weights, "merge_parameters", lambda module, keep: {"w": torch.zeros(2)})
    monkeypatch.setattr(weights, "WeightSender", made.group)
    yield made
    for address in [*made._there]:
        made.go(address)


def parts_of(output_dir: Path, *argv: str) -> Any:
    flags = ["--orchestrator.env.0.id", "reverse-text", "--output_dir", str(output_dir), *argv]
    chat = SimpleNamespace(stop_ids=frozenset([2]))
    policy = SimpleNamespace(module=torch.nn.Module(), chat=chat, device=torch.device("cpu"))
    ranks = SimpleNamespace(leads=True, of_first=lambda value: value, united=nullcontext)
    config = load(RLConfig, flags, {}).config
    return SimpleNamespace(config=config, policy=policy, ranks=ranks, output_dir=output_dir)


def published(output_dir: Path, way: str = "broadcast") -> PublishedWeights:
    parts = parts_of(output_dir, "--deployment.weights", way)
    return PublishedWeights(parts, roster_of(output_dir, "trainer"))


def test_where_samplers_are_is_what_they_say_and_each_process_has_a_name_of_its_own(samplers, tmp_path):
    config, roster = parts_of(tmp_path).config, roster_of(tmp_path)
    for address in ("http://a", "http://b"):
        samplers.come(address)
    found = sampler_addresses(config, roster)
    assert [one.base_url for one in found.values()] == ["http://a", "http://b"]
    assert [name.partition(" ")[0] for name in found] == ["inference-0,", "inference-1,"]
    assert all(f"process {os.getpid()} on " in name for name in found)
    [at_address] = sampler_addresses(parts_of(tmp_path, *AT_ADDRESS).config, roster).values()
    assert at_address.base_url == "http://127.0.0.1:1"


def test_a_broadcast_goes_to_all_that_are_there_in_one_group_and_again_to_who_comes_later(samplers, tmp_path):
    trainer = published(tmp_path)

    def lacks_samplers() -> bool:
        time.sleep(0.03)  # it looks now and then
        return trainer.lack_samplers()

    assert not lacks_samplers()  # nothing was published yet
    samplers.come("http://a")
    for version in (0, 0, 1):
        trainer.publish(version)
    assert samplers.sent == [(["http://a"], 0), (["http://a"], 1)] and samplers.num_groups == 1
    assert newest_version(RunDir(tmp_path)) == 1 and not lacks_samplers()
    samplers.come("http://b")
    assert lacks_samplers() and not trainer.lack_samplers()
    trainer.send_again()
    assert samplers.sent[2:] == [(["http://a", "http://b"], 1)] and samplers.num_groups == 2
    assert not lacks_samplers()
    samplers.go("http://a")
    trainer.publish(2)
    assert samplers.sent[3:] == [(["http://b"], 2)]


# The last one is raised where connections were closed meanwhile.
@pytest.mark.parametrize("error", [UserError("it broke"), CancelledError(), RuntimeError("Event loop is closed")])
@pytest.mark.parametrize("later_s", [0.0, 0.1])
def test_one_that_goes_in_the_middle_of_a_broadcast_breaks_it_off_and_the_others_get_it(
    later_s, error, samplers, tmp_path, monkeypatch
):
    monkeypatch.setattr(Roster, "loss_s", 5.0)
    samplers.come("http://a")
    samplers.come("http://b")
    late = threading.Timer(later_s, samplers.go, ["http://a"])  # a cluster knows later that it has gone

    def hang(clients: Sequence[FakeClient]) -> None:
        if len(clients) == 2:
            late.start()
            assert later_s or clients[0].is_closed.wait(10)  # by the side that looks who is there
            raise error

    samplers.trouble = hang
    published(tmp_path).publish(4)
    late.join()
    assert samplers.sent == [(["http://b"], 4)]


@pytest.mark.parametrize("error", [UserError("no room"), RuntimeError("no room")])
def test_one_that_is_there_and_does_not_take_them_is_an_error(error, samplers, tmp_path):
    samplers.come("http://a")

    def refuse(clients: Sequence[FakeClient]) -> None:
        raise error

    samplers.trouble = refuse
    with pytest.raises(UserError, match="no room"):
        published(tmp_path).publish(4)
    assert newest_version(RunDir(tmp_path)) == -1


@pytest.mark.parametrize("is_there", [False, True])
def test_a_broadcast_waits_for_a_sampler_also_for_one_that_goes_between_two_looks(
    is_there, samplers, tmp_path, monkeypatch
):
    looks, find = [{}] if is_there else [], weights.sampler_addresses
    monkeypatch.setattr(weights, "sampler_addresses", lambda *where: looks.pop() if looks else find(*where))
    later = threading.Timer(0.0 if is_there else 0.1, samplers.come, ["http://a"])
    later.start()
    published(tmp_path).publish(4)
    later.join()
    assert samplers.sent == [(["http://a"], 4)] and not looks


def test_weights_in_files_lack_nobody(samplers, tmp_path, monkeypatch):
    saved: list[Path] = []
    monkeypatch.setattr(weights, "save_weights", lambda policy, path, leads, adapter: saved.append(path))
    trainer = published(tmp_path, "files")
    trainer.publish(4)
    trainer.publish(4)
    samplers.come("http://a")
    assert saved == [RunDir(tmp_path).sent_weights_of(4)] and not trainer.lack_samplers()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "is_alone"), [((), True), (("--inference.backend", "vllm"), False), (AT_ADDRESS, False)]
)
def test_an_adapter_alone_is_for_samplers_that_have_the_model_under_it(
    more: Sequence[str], is_alone: bool, tiny_dir, tmp_path, monkeypatch
):
    config = ModelConfig(name=str(tiny_dir), device="cpu", num_threads=1, lora=LoraConfig(rank=4))
    parts, roster = parts_of(tmp_path, *more), roster_of(tmp_path, "trainer")
    parts.policy = load_policy(config)
    PublishedWeights(parts, roster).publish(0)
    assert is_adapter(RunDir(tmp_path).sent_weights_of(0)) == is_alone
    sent: list[tuple[set[str], Any]] = []
    monkeypatch.setattr(
        PublishedWeights, "_send_to", lambda self, there, tensors, _: sent.append((set(tensors), self._adapter))
    )
    parts.config = parts_of(tmp_path, *more, "--deployment.weights", "broadcast").config
    with joined(tmp_path, "inference", address="http://a"):
        PublishedWeights(parts, roster).publish(1)
    [(names, adapter)] = sent
    assert all(".lora_" in name for name in names) == is_alone
    assert adapter == (AdapterForm(4, 8.0, base_fingerprint(parts.policy.module)) if is_alone else None)


class Lacking:
    """The trainer's end of the weights, which lacks a sampler so many times."""

    def __init__(self, num: int) -> None:
        self.num, self.num_sent = num, 0

    def lack_samplers(self) -> bool:
        return self.num_sent < self.num

    def send_again(self) -> None:
        self.num_sent += 1


def sampling_elsewhere(output_dir: Path, lacking: Any, timeout_s: float = 20.0) -> tuple[SamplingElsewhere, list[str]]:
    """Return the trainer's end of sampling, and a list of the values that the first rank sends to the others."""
    parts, told = parts_of(output_dir), list[str]()
    parts.ranks.of_first = lambda value: (told.append(value), value)[1]
    return SamplingElsewhere(parts, roster_of(output_dir, "trainer", timeout_s), lacking, 0), told


def test_while_a_batch_is_waited_for_weights_are_sent_again_and_the_other_ranks_hear_of_the_first(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(elsewhere, "PULSE_S", 0.03)
    lacking = Lacking(2)
    here, told = sampling_elsewhere(tmp_path, lacking)
    orchestrator = threading.Timer(0.3, write_batch, [BATCH, RunDir(tmp_path).batch_of(0)])
    orchestrator.start()
    batch = here.receive(0)
    orchestrator.join()
    assert batch.samples == BATCH.samples and batch.metrics["time/wait_batch_s"] > 0.1
    assert lacking.num_sent == 2 and told[:2] == [SEND_AGAIN, SEND_AGAIN]
    assert told[-1] == IT_IS_THERE and len(told) > 4 and set(told[2:-1]) == {WAIT_ON}


def test_a_batch_that_does_not_come_is_an_error_in_all_ranks(tmp_path):
    here, told = sampling_elsewhere(tmp_path, Lacking(0), timeout_s=0.1)
    with pytest.raises(UserError, match="in vain for the orchestrator's batch of step 0"):
        here.receive(0)
    assert len(told) == 1 and "in vain" in told[0]


def test_the_other_ranks_do_what_the_first_says(tmp_path):
    lacking = Lacking(9)
    here, _ = sampling_elsewhere(tmp_path, lacking)
    write_batch(BATCH, RunDir(tmp_path).batch_of(0))
    words = iter([WAIT_ON, SEND_AGAIN, WAIT_ON, IT_IS_THERE, WAIT_ON, "the orchestrator has ended"])
    here.parts.ranks.leads, here.parts.ranks.of_first = False, lambda value: next(words)
    assert here.receive(0).samples == BATCH.samples and lacking.num_sent == 1
    with pytest.raises(UserError, match="the orchestrator has ended"):
        here.receive(1)


class Taking:
    """The client of the samplers, which keeps what it was given."""

    def __init__(self, failure: str = "") -> None:
        self.taken: list[Any] = []
        self._failure = failure

    def update_weights(self, directory: Path | None, version: int) -> None:
        if self._failure and self.taken:
            raise UserError(self._failure)
        self.taken.append((directory and directory.name, version))


def sampled(output_dir: Path, client: Any, way: Any = "files") -> SampledWeights:
    RunDir(output_dir).sent_weights_of(0).mkdir(parents=True)
    given = SampledWeights(roster_of(output_dir), client, DeploymentConfig(weights=way))
    given.await_version(0)
    return given


@pytest.mark.parametrize(
    ("way", "taken"), [("files", [("step_0", 0), ("step_2", 2)]), ("broadcast", [(None, 0), (None, 2)])]
)
def test_samplers_take_each_new_version_in_the_middle_of_a_batch(way, taken, tmp_path):
    client = Taking()
    with sampled(tmp_path, client, way).keep_new():
        RunDir(tmp_path).sent_weights_of(2).mkdir()
        wait_until(lambda: len(client.taken) == 2)
    assert client.taken == taken


def test_weights_that_are_refused_in_the_middle_of_a_batch_are_the_cause_of_what_follows(tmp_path):
    given = sampled(tmp_path, Taking("no room"))

    def make_a_batch() -> None:
        with given.keep_new():
            RunDir(tmp_path).sent_weights_of(1).mkdir()
            wait_until(lambda: given._failure)
            raise UserError("nobody samples")

    with pytest.raises(UserError, match="no room"):
        make_a_batch()
