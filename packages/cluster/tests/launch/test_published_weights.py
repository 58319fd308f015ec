"""How a trainer's weights reach samplers that come and go, and how the trainer waits for its batches meanwhile."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
import torch

from packages.cluster.tests.helpers import joined, meeting_of
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
from slimrl_cluster.transport.meeting import newest_version

BATCH = Batch((Sample((1, 2), (False, True), (0.0, -0.5), (0.0, 1.0), 0),), 1.0)


class FakeClient:
    """A client of a sampler, which is known by its address."""

    def __init__(self, address: Any, stop_ids: frozenset[int], seq_len: int) -> None:
        self.url, self.is_closed = address.base_url, threading.Event()

    def check_server(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed.set()


class FakeSender:
    """Keeps what was sent to whom; `trouble` is called before, with the clients."""

    sent: ClassVar[list[tuple[list[str], int]]] = []
    num_groups = 0
    trouble: ClassVar[Callable[[Sequence[FakeClient]], None]] = staticmethod(lambda clients: None)

    def __init__(self, clients: Sequence[FakeClient], host: str, device: torch.device, timeout_s: float) -> None:
        assert clients
        self.clients = clients
        type(self).num_groups += 1

    def send(self, tensors: Any, version: int, adapter: Any) -> None:
        type(self).trouble(self.clients)
        self.sent.append((sorted(client.url for client in self.clients), version))

    def close(self) -> None:
        pass


class Samplers:
    """Samplers that are in the run's directory."""

    def __init__(self, output_dir: Path) -> None:
        self._output_dir, self._there = output_dir, dict[str, ExitStack]()

    def come(self, address: str) -> None:
        self._there[address] = ExitStack()
        self._there[address].enter_context(joined(self._output_dir, "inference", address=address))

    def go(self, address: str) -> None:
        self._there.pop(address).close()

    def close(self) -> None:
        for address in [*self._there]:
            self.go(address)


@pytest.fixture
def samplers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Samplers]:
    monkeypatch.setattr(weights, "LOOK_S", 0.02)
    monkeypatch.setattr(weights, "LEAVE_S", {"auto": 0.02})
    monkeypatch.setattr(weights, "RemoteClient", FakeClient)
    monkeypatch.setattr(weights, "merge_parameters", lambda module, keep: {"w": torch.zeros(2)})
    sender = type("Sender", (FakeSender,), {"sent": [], "num_groups": 0})
    monkeypatch.setattr(weights, "WeightSender", sender)
    made = Samplers(tmp_path)
    yield made
    made.close()


def parts_of(output_dir: Path, *argv: str) -> Any:
    flags = ["--orchestrator.env.0.id", "reverse-text", "--output_dir", str(output_dir), *argv]
    chat = SimpleNamespace(stop_ids=frozenset([2]))
    policy = SimpleNamespace(module=torch.nn.Module(), chat=chat, device=torch.device("cpu"))
    ranks = SimpleNamespace(leads=True, of_first=lambda value: value, united=nullcontext)
    config = load(RLConfig, flags, {}).config
    return SimpleNamespace(config=config, policy=policy, ranks=ranks, output_dir=output_dir)


def broadcast(output_dir: Path) -> tuple[PublishedWeights, Any]:
    parts = parts_of(output_dir, "--deployment.weights", "broadcast")
    return PublishedWeights(parts, meeting_of(output_dir, "trainer")), weights.WeightSender


def test_where_samplers_are_is_what_they_say_and_each_process_has_a_name_of_its_own(samplers, tmp_path):
    config, meeting = parts_of(tmp_path).config, meeting_of(tmp_path)
    for address in ("http://a", "http://b"):
        samplers.come(address)
    found = sampler_addresses(config, meeting)
    assert [one.base_url for one in found.values()] == ["http://a", "http://b"]
    assert [name.partition(" ")[0] for name in found] == ["inference-0,", "inference-1,"]
    assert all(f"process {os.getpid()} on " in name for name in found)
    address = ["--inference.base_url", "http://c", "--warmup.max_steps", "0"]
    [at_address] = sampler_addresses(parts_of(tmp_path, *address).config, meeting).values()
    assert at_address.base_url == "http://c"


def test_a_broadcast_goes_to_all_that_are_there_in_one_group_and_again_to_who_comes_later(samplers, tmp_path):
    published, sender = broadcast(tmp_path)
    assert not published.lack_samplers()  # nothing was published yet
    samplers.come("http://a")
    for version in (0, 0, 1):
        published.publish(version)
    assert sender.sent == [(["http://a"], 0), (["http://a"], 1)] and sender.num_groups == 1
    assert newest_version(RunDir(tmp_path)) == 1
    time.sleep(0.03)
    assert not published.lack_samplers()
    samplers.come("http://b")
    time.sleep(0.03)
    assert published.lack_samplers() and not published.lack_samplers()  # it looks now and then
    published.send_again()
    assert sender.sent[2:] == [(["http://a", "http://b"], 1)] and sender.num_groups == 2
    time.sleep(0.03)
    assert not published.lack_samplers()
    samplers.go("http://a")
    published.publish(2)
    assert sender.sent[3:] == [(["http://b"], 2)]


# The last one is raised where connections were closed meanwhile.
@pytest.mark.parametrize("error", [UserError("it broke"), CancelledError(), RuntimeError("Event loop is closed")])
@pytest.mark.parametrize("later_s", [0.0, 0.1])
def test_one_that_goes_in_the_middle_of_a_broadcast_breaks_it_off_and_the_others_get_it(
    later_s, error, samplers, tmp_path, monkeypatch
):
    monkeypatch.setattr(weights, "LEAVE_S", {"auto": 5.0})
    published, sender = broadcast(tmp_path)
    samplers.come("http://a")
    samplers.come("http://b")
    late = threading.Timer(later_s, samplers.go, ["http://a"])  # a cluster knows later that it has gone

    def hang(clients: Sequence[FakeClient]) -> None:
        if len(clients) == 2:
            late.start()
            assert later_s or clients[0].is_closed.wait(10)  # by the side that looks who is there
            raise error

    sender.trouble = staticmethod(hang)
    published.publish(4)
    late.join()
    assert sender.sent == [(["http://b"], 4)]


@pytest.mark.parametrize("error", [UserError("no room"), RuntimeError("no room")])
def test_one_that_is_there_and_does_not_take_them_is_an_error(error, samplers, tmp_path):
    published, sender = broadcast(tmp_path)
    samplers.come("http://a")

    def refuse(clients: Sequence[FakeClient]) -> None:
        raise error

    sender.trouble = staticmethod(refuse)
    with pytest.raises(UserError, match="no room"):
        published.publish(4)
    assert newest_version(RunDir(tmp_path)) == -1


@pytest.mark.parametrize("is_there", [False, True])
def test_a_broadcast_waits_for_a_sampler_also_for_one_that_goes_between_two_looks(
    is_there, samplers, tmp_path, monkeypatch
):
    published, sender = broadcast(tmp_path)
    looks, find = [{}] if is_there else [], weights.sampler_addresses
    monkeypatch.setattr(weights, "sampler_addresses", lambda *where: looks.pop() if looks else find(*where))
    later = threading.Timer(0.0 if is_there else 0.1, samplers.come, ["http://a"])
    later.start()
    published.publish(4)
    later.join()
    assert sender.sent == [(["http://a"], 4)] and not looks


def test_weights_in_files_lack_nobody(samplers, tmp_path, monkeypatch):
    saved: list[Path] = []
    monkeypatch.setattr(weights, "save_weights", lambda policy, path, leads, adapter: saved.append(path))
    published = PublishedWeights(parts_of(tmp_path), meeting_of(tmp_path, "trainer"))
    published.publish(4)
    published.publish(4)
    samplers.come("http://a")
    assert saved == [RunDir(tmp_path).sent_weights_of(4)] and not published.lack_samplers()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "is_alone"),
    [
        ((), True),
        (("--inference.backend", "vllm"), False),
        (("--inference.base_url", "http://127.0.0.1:1", "--warmup.max_steps", "0"), False),
    ],
)
def test_an_adapter_alone_is_for_samplers_that_have_the_model_under_it(
    more: Sequence[str], is_alone: bool, tiny_dir, tmp_path, monkeypatch
):
    config = ModelConfig(name=str(tiny_dir), device="cpu", num_threads=1, lora=LoraConfig(rank=4))
    parts = parts_of(tmp_path, *more)
    parts.policy = load_policy(config)
    PublishedWeights(parts, meeting_of(tmp_path, "trainer")).publish(0)
    assert is_adapter(RunDir(tmp_path).sent_weights_of(0)) == is_alone
    sent: list[tuple[set[str], Any]] = []
    monkeypatch.setattr(
        PublishedWeights, "_send_to", lambda self, there, tensors, _: sent.append((set(tensors), self._adapter))
    )
    parts.config = parts_of(tmp_path, *more, "--deployment.weights", "broadcast").config
    with joined(tmp_path, "inference", address="http://a"):
        PublishedWeights(parts, meeting_of(tmp_path, "trainer")).publish(1)
    [(names, adapter)] = sent
    assert all(".lora_" in name for name in names) == is_alone
    assert adapter == (AdapterForm(4, 8.0, base_fingerprint(parts.policy.module)) if is_alone else None)


class Weights:
    """The trainer's end, which lacks a sampler so many times."""

    def __init__(self, num: int) -> None:
        self.num, self.num_sent = num, 0

    def lack_samplers(self) -> bool:
        return self.num_sent < self.num

    def send_again(self) -> None:
        self.num_sent += 1


def sampling_elsewhere(output_dir: Path, lacking: int, timeout_s: float = 20.0) -> tuple[SamplingElsewhere, Any]:
    ends: Any = Weights(lacking)
    return SamplingElsewhere(
        parts_of(output_dir), meeting_of(output_dir, "trainer", timeout_s=timeout_s), ends, 0
    ), ends


def later(seconds: float, output_dir: Path) -> threading.Timer:
    """Have the batch of step 0 written after a while."""
    timer = threading.Timer(seconds, write_batch, [BATCH, RunDir(output_dir).batch_of(0)])
    timer.start()
    return timer


def test_weights_are_sent_again_while_a_batch_is_waited_for(tmp_path):
    here, ends = sampling_elsewhere(tmp_path, 2)
    orchestrator = later(0.2, tmp_path)
    batch = here.receive(0)
    orchestrator.join()
    assert batch.samples == BATCH.samples and batch.metrics["time/wait_batch_s"] > 0.1
    assert ends.num_sent == 2


def told_to_ranks(here: SamplingElsewhere) -> list[str]:
    """What the first rank tells the others."""
    told: list[str] = []
    here.parts.ranks.of_first = lambda value: (told.append(value), value)[1]
    return told


def test_a_batch_that_does_not_come_is_an_error_in_all_ranks(tmp_path):
    here, _ = sampling_elsewhere(tmp_path, 0, timeout_s=0.1)
    told = told_to_ranks(here)
    with pytest.raises(UserError, match="in vain for the orchestrator's batch of step 0"):
        here.receive(0)
    assert len(told) == 1 and "in vain" in told[0]


def test_the_other_ranks_do_what_the_first_says(tmp_path):
    here, ends = sampling_elsewhere(tmp_path, 9)
    write_batch(BATCH, RunDir(tmp_path).batch_of(0))
    words = iter([WAIT_ON, SEND_AGAIN, WAIT_ON, IT_IS_THERE, WAIT_ON, "the orchestrator has ended"])
    here.parts.ranks.leads, here.parts.ranks.of_first = False, lambda value: next(words)
    assert here.receive(0).samples == BATCH.samples and ends.num_sent == 1
    with pytest.raises(UserError, match="the orchestrator has ended"):
        here.receive(1)


def test_the_other_ranks_hear_of_the_first_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(elsewhere, "PULSE_S", 0.03)
    here, _ = sampling_elsewhere(tmp_path, 0)
    told, orchestrator = told_to_ranks(here), later(0.3, tmp_path)
    here.receive(0)
    orchestrator.join()
    assert told[-1] == IT_IS_THERE and len(told) > 2 and set(told[:-1]) == {WAIT_ON}


class Taking:
    """The client of the samplers, which keeps what it was given."""

    def __init__(self, failure: str = "") -> None:
        self.taken: list[Any] = []
        self._failure = failure

    def update_weights(self, directory: Path, version: int) -> None:
        if self._failure and self.taken:
            raise UserError(self._failure)
        self.taken.append((directory.name, version))

    def note_broadcast(self, version: int) -> None:
        self.taken.append(version)


@contextmanager
def sampled(
    output_dir: Path, client: Any, weights: Literal["files", "broadcast"] = "files"
) -> Iterator[SampledWeights]:
    meeting = meeting_of(output_dir)
    meeting.run.sent_weights_of(0).mkdir(parents=True)
    yield SampledWeights(meeting, client, DeploymentConfig(weights=weights))


@pytest.mark.parametrize(("way", "taken"), [("files", [("step_0", 0), ("step_2", 2)]), ("broadcast", [0, 2])])
def test_samplers_take_each_new_version_in_the_middle_of_a_batch(way, taken, tmp_path):
    client = Taking()
    with sampled(tmp_path, client, way) as given:
        given.await_version(0)
        with given.keep_new():
            RunDir(tmp_path).sent_weights_of(2).mkdir()
            deadline = time.monotonic() + 10
            while len(client.taken) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
    assert client.taken == taken


def test_weights_that_are_refused_in_the_middle_of_a_batch_are_the_cause_of_what_follows(tmp_path):
    def make_a_batch(given: SampledWeights) -> None:
        with given.keep_new():
            RunDir(tmp_path).sent_weights_of(1).mkdir()
            deadline = time.monotonic() + 10
            while not given._failure and time.monotonic() < deadline:
                time.sleep(0.01)
            raise UserError("nobody samples")

    with sampled(tmp_path, Taking("no room")) as given:
        given.await_version(0)
        with pytest.raises(UserError, match="no room"):
            make_a_batch(given)
