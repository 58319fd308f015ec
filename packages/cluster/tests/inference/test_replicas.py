"""A client over several samplers, which come, go, hang and refuse: every token is of weights that may be sampled."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from packages.cluster.tests.helpers import wait_until
from packages.cluster.tests.inference.fake_vllm import FakeVllm
from slimrl.errors import UserError
from slimrl.inference.client import Completion
from slimrl.types import SamplingParams
from slimrl_cluster.inference.remote_client import RemoteClient
from slimrl_cluster.inference.replicas import Replicas
from slimrl_cluster.inference.routing import BLOCK
from slimrl_cluster.inference.server_link import SamplerAddress
from tests.io.replying import Answer, Asked, server

PROMPT = [*range(3, BLOCK + 3)]
SEEDED = SamplingParams(max_tokens=2, seed=77)


class Sampler(FakeVllm):
    """One fake sampler; a gate that is closed keeps what asks for its route waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Asked] = []
        self.gates: dict[str, threading.Event] = {}

    def close(self, path: str) -> threading.Event:
        return self.gates.setdefault(path, threading.Event())

    def __call__(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if gate := self.gates.get(asked.path):
            gate.wait(20)
        return super().__call__(asked)

    def paths(self) -> list[str]:
        return [one.path for one in self.asked]


class Samplers:
    """The samplers of a run, by name, and the client over them."""

    def __init__(self, whole: ExitStack, directory: Path) -> None:
        self._whole, self._directory = whole, directory
        self.there: dict[str, SamplerAddress] = {}
        self.notes: list[str] = []
        self.failure: OSError | None = None

    def come(self, name: str, sampler: Sampler | None = None, timeout_s: float = 20.0) -> Sampler:
        sampler = sampler or Sampler()
        url, _ = self._whole.enter_context(server(sampler))
        self._whole.callback(lambda: [gate.set() for gate in sampler.gates.values()])
        self.there = {**self.there, name: SamplerAddress(url.removesuffix("/v1"), "", timeout_s, "vllm")}
        return sampler

    def find(self) -> dict[str, SamplerAddress]:
        if self.failure:
            raise self.failure
        return self.there

    def go(self, name: str) -> None:
        self.there = {key: address for key, address in self.there.items() if key != name}

    def num_gone(self) -> int:
        return sum("is gone" in note for note in self.notes)

    def client(self, num: int, timeout_s: float = 20.0) -> Replicas:
        """The client, once so many samplers are ready."""
        replicas = Replicas(
            self.find,
            lambda address: RemoteClient(address, frozenset([2]), 64),
            self.notes.append,
            timeout_s,
        )
        self._whole.callback(replicas.close)
        wait_until(lambda: num_ready(replicas) == num)
        return replicas

    def weights(self, token: int) -> Path:
        directory = self._directory / str(token)
        directory.mkdir(exist_ok=True)
        (directory / "token").write_text(json.dumps(token))
        return directory


def num_ready(replicas: Replicas) -> int:
    """How many samplers may sample now."""
    return sum(member.is_ready for member in replicas._members.values())


def sample(replicas: Replicas, prompt: list[int] = PROMPT, params: SamplingParams = SEEDED) -> Completion:
    return asyncio.run(replicas.sample(prompt, params))


@pytest.fixture
def samplers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Samplers]:
    monkeypatch.setattr("slimrl_cluster.inference.replicas.POLL_S", 0.01)
    with ExitStack() as whole:
        yield Samplers(whole, tmp_path)


@pytest.fixture
def begin() -> Iterator[Callable[..., Future]]:
    """Starts a function in a thread of its own."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


@pytest.mark.slow
def test_all_samplers_take_new_weights_and_share_the_requests(samplers: Samplers) -> None:
    both = samplers.come("a"), samplers.come("b")
    replicas = samplers.client(2)
    replicas.check()
    replicas.update_weights(samplers.weights(12), 0)
    assert [one.version for one in both] == ["0", "0"] and replicas.version == 0

    async def several() -> list[Completion]:
        return await asyncio.gather(*(replicas.sample([n] * BLOCK, SEEDED) for n in range(40)))

    assert {one.token_ids for one in asyncio.run(several())} == {(12, 12)}
    shares = [one.paths().count("/inference/v1/generate") for one in both]
    assert sum(shares) == 40 and min(shares) > 10
    assert not samplers.notes


@pytest.mark.slow
def test_a_sampler_that_comes_late_has_the_newest_weights_before_it_samples(samplers: Samplers, begin) -> None:
    samplers.come("a")
    replicas = samplers.client(1)
    replicas.update_weights(samplers.weights(12), 3)
    late = Sampler()
    gate = late.close("/update_weights")
    samplers.come("b", late)
    wait_until(lambda: "/update_weights" in late.paths())
    assert num_ready(replicas) == 1
    samplers.go("a")
    wait_until(lambda: num_ready(replicas) == 0)
    waiting = begin(sample, replicas)
    time.sleep(0.1)
    assert not waiting.done() and "/inference/v1/generate" not in late.paths()
    gate.set()
    assert waiting.result(20) == Completion((12, 12), (-0.5, -0.5), (3, 3), "length")
    assert any("takes part from now on" in note for note in samplers.notes)


@pytest.mark.slow
def test_the_version_is_raised_only_when_every_sampler_has_the_weights(samplers: Samplers, begin) -> None:
    quick, slow = samplers.come("a"), samplers.come("b")
    replicas = samplers.client(2)
    replicas.update_weights(samplers.weights(12), 1)
    gate = slow.close("/update_weights")
    updating = begin(replicas.update_weights, samplers.weights(13), 2)
    wait_until(lambda: quick.version == "2")
    time.sleep(0.05)
    assert replicas.version == 1 and not updating.done()
    gate.set()
    updating.result(20)
    assert replicas.version == 2 and slow.version == "2"


class Slow(Sampler):
    """Takes its time over each request and each update, and takes the weights for a reply when it is asked."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)

    def inference_v1_generate(self, asked: Asked) -> Answer:
        reply = super().inference_v1_generate(asked)
        time.sleep(self._rng.uniform(0, 0.01))
        return reply

    def update_weights(self, asked: Asked) -> Answer:
        time.sleep(self._rng.uniform(0, 0.03))
        return super().update_weights(asked)


@pytest.mark.slow
def test_no_token_is_older_than_the_version_when_it_was_asked_for(samplers: Samplers, begin) -> None:
    for seed in range(3):
        samplers.come(f"a{seed}", Slow(seed))
    replicas, done = samplers.client(3), threading.Event()
    replicas.update_weights(samplers.weights(10), 0)

    async def keep_sampling(number: int) -> int:
        num, rng = 0, random.Random(number)
        while not done.is_set():
            version = replicas.version
            completion = await replicas.sample([rng.randrange(90)] * BLOCK, SEEDED)
            assert min(completion.versions) >= version
            num += 1
        return num

    sampling = [begin(asyncio.run, keep_sampling(number)) for number in range(4)]
    for version in range(1, 6):
        if version == 2:
            samplers.come("late", Slow(4))
        if version == 4:
            samplers.go("a1")
        replicas.update_weights(samplers.weights(10 + version), version)
        time.sleep(0.02)
    done.set()
    assert all(one.result(20) > 2 for one in sampling)


def test_what_a_sampler_had_begun_that_goes_is_sampled_anew_with_the_same_seed(samplers: Samplers, begin) -> None:
    both = {"a": samplers.come("a"), "b": samplers.come("b")}
    replicas = samplers.client(2)
    for one in both.values():
        one.close("/inference/v1/generate")
    waiting = begin(sample, replicas)
    wait_until(lambda: any("/inference/v1/generate" in one.paths() for one in both.values()))
    first, other = sorted(both, key=lambda name: "/inference/v1/generate" not in both[name].paths())
    both[other].gates["/inference/v1/generate"].set()
    samplers.go(first)
    assert waiting.result(20).token_ids == (11, 11)
    bodies = [one.asked[-1].body for one in both.values()]
    assert bodies[0] == bodies[1] and bodies[0]["sampling_params"]["seed"] == 77
    assert any("is gone; what it had begun is sampled anew" in note for note in samplers.notes)


@pytest.mark.slow
@pytest.mark.parametrize("had_one", [False, True])
def test_without_a_sampler_requests_wait_for_one_that_comes(had_one: bool, samplers: Samplers, begin) -> None:
    first = samplers.come("a") if had_one else None
    replicas = samplers.client(int(had_one))
    replicas.update_weights(samplers.weights(12), 5)
    assert replicas.version == 5
    if first:
        first.close("/inference/v1/generate")
    waiting = begin(sample, replicas)
    if first:
        wait_until(lambda: "/inference/v1/generate" in first.paths())
        samplers.go("a")
        wait_until(lambda: num_ready(replicas) == 0)
    time.sleep(0.05)
    assert not waiting.done()
    samplers.come("b")
    assert waiting.result(20).versions == (5, 5)


class Stubborn(Sampler):
    has_room = True

    def update_weights(self, asked: Asked) -> Answer:
        return super().update_weights(asked) if self.has_room else Answer(500, {"error": "no room"})


@pytest.mark.slow
def test_weights_that_one_of_several_refuses_are_an_error(samplers: Samplers) -> None:
    samplers.come("a")
    stubborn = samplers.come("b", Stubborn())
    replicas = samplers.client(2)
    replicas.update_weights(samplers.weights(12), 4)
    stubborn.has_room = False
    with pytest.raises(UserError, match=r"/update_weights answers with status 500.*no room.* the weights in .*13"):
        replicas.update_weights(samplers.weights(13), 5)
    assert replicas.version == 4


def test_a_late_sampler_that_refuses_the_weights_is_told_and_the_others_go_on(samplers: Samplers) -> None:
    samplers.come("a")
    replicas = samplers.client(1)
    replicas.update_weights(samplers.weights(12), 5)
    samplers.come("b").max_model_len = 3
    wait_until(lambda: bool(samplers.notes))
    assert "takes 3 tokens, and seq_len = 64" in samplers.notes[0] and "Others go on without it" in samplers.notes[0]
    assert sample(replicas).versions == (5, 5) and num_ready(replicas) == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_replaced", [False, True])
def test_one_that_is_silent_is_given_up_while_others_are_there_and_asked_again_later(
    is_replaced: bool, samplers: Samplers, begin, monkeypatch
) -> None:
    hangs, good = samplers.come("a", timeout_s=3.0), samplers.come("b", timeout_s=3.0)
    replicas = samplers.client(2)
    good.close("/inference/v1/generate")
    for path in ("/inference/v1/generate", "/is_paused"):
        hangs.close(path)

    async def several() -> list[Completion]:
        return await asyncio.gather(*(replicas.sample([n] * BLOCK, SEEDED) for n in range(8)))

    waiting = begin(asyncio.run, several())
    wait_until(lambda: "/inference/v1/generate" in hangs.paths())
    good.gates["/inference/v1/generate"].set()
    assert [one.token_ids for one in waiting.result(20)] == [(11, 11)] * 8
    assert num_ready(replicas) == 1
    [note] = samplers.notes
    assert "has given no sign of life" in note and note.endswith("Others go on with its work.")
    if is_replaced:
        samplers.go("a")
        wait_until(lambda: len(samplers.notes) == 2)
        samplers.come("a again")
    else:
        for gate in hangs.gates.values():
            gate.set()
        monkeypatch.setattr("slimrl_cluster.inference.replicas.AGAIN_S", 0.5)
    wait_until(lambda: num_ready(replicas) == 2)


def cannot_look(samplers: Samplers) -> None:
    samplers.come("a")
    samplers.failure = OSError("Stale file handle")


def refuse(samplers: Samplers) -> None:
    for name in "ab":
        samplers.come(name).max_model_len = 3


def hang(samplers: Samplers) -> None:
    alone = samplers.come("a", timeout_s=3.0)
    for path in ("/inference/v1/generate", "/is_paused"):
        alone.close(path)


@pytest.mark.parametrize(
    ("prepare", "error", "words"),
    [
        (lambda samplers: None, UserError, r"there is no sampler, for \d+ s now \(deployment.timeout_s\).*--resume"),
        (refuse, UserError, "takes 3 tokens, and seq_len = 64"),
        (hang, UserError, "has given no sign of life for"),
        (cannot_look, OSError, "Stale file handle"),
    ],
)
def test_where_nobody_samples_the_cause_is_raised_in_time(
    prepare: Callable[[Samplers], None], error: type[Exception], words: str, samplers: Samplers
) -> None:
    prepare(samplers)
    replicas = samplers.client(0, timeout_s=3.0) if prepare is not hang else samplers.client(1)
    began = time.monotonic()
    with pytest.raises(error, match=words):
        sample(replicas)
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_one_that_is_silent_when_it_gets_weights_is_given_up_too(samplers: Samplers) -> None:
    hangs, good = samplers.come("a", timeout_s=3.0), samplers.come("b")
    replicas = samplers.client(2)
    hangs.close("/update_weights")
    hangs.close("/is_paused")
    replicas.update_weights(samplers.weights(12), 5)
    assert replicas.version == 5 and good.version == "5" and num_ready(replicas) == 1
    assert sample(replicas).versions == (5, 5)


def test_weights_of_another_run_are_found_at_each_sampler(samplers: Samplers) -> None:
    samplers.come("a")
    samplers.come("b").version = "20"
    replicas = samplers.client(2)
    with pytest.raises(UserError, match=r"has weights of another run \(version 20\)\. Start it again"):
        replicas.check()
    replicas.update_weights(samplers.weights(12), 0)
    replicas.check()


def test_a_request_that_is_cancelled_frees_its_place(samplers: Samplers) -> None:
    one = samplers.come("a")
    replicas = samplers.client(1)
    gate = one.close("/inference/v1/generate")

    async def scenario() -> None:
        task = asyncio.create_task(replicas.sample(PROMPT, SEEDED))
        while "/inference/v1/generate" not in one.paths():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    [member] = replicas._members.values()
    wait_until(lambda: not member.open)
    gate.set()
    assert sample(replicas).token_ids == (11, 11)
