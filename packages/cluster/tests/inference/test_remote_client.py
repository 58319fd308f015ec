"""A run's client of one server, slimrl's or vLLM: tokens, versions, new weights, restarts, and servers that hang."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from packages.cluster.tests.helpers import client_of, serving
from packages.cluster.tests.inference.fake_vllm import FakeVllm
from slimrl.errors import UserError
from slimrl.inference.client import Completion
from slimrl.types import SamplingParams
from slimrl_cluster.inference.replicas import Replicas
from tests.inference.naive import naive_greedy, naive_module
from tests.io.replying import Answer, Asked, server

PROMPT = [5, 6, 7]
GREEDY = SamplingParams(max_tokens=6, temperature=0.0)
LONG = SamplingParams(max_tokens=50, temperature=0.0)


@contextmanager
def fake(vllm: Callable[[Asked], Answer], timeout_s: float = 20.0) -> Iterator[tuple[Replicas, list[Asked]]]:
    with server(vllm) as (url, asked), client_of(url, "vllm", timeout_s) as client:
        yield client, asked


def sample(client: Replicas, params: SamplingParams = GREEDY) -> Completion:
    return asyncio.run(client.sample(PROMPT, params))


def fake_weights(directory: Path, token: int) -> Path:
    directory.mkdir()
    (directory / "token").write_text(json.dumps(token))
    return directory


def tiny_weights(tiny_dir: Path, directory: Path, factor: float) -> Path:
    directory.mkdir()
    weights = {name: tensor * factor for name, tensor in load_file(tiny_dir / "model.safetensors").items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


@pytest.mark.slow
def test_slimrls_own_server_gives_the_engines_tokens(tiny_dir: Path, tmp_path: Path) -> None:
    with serving(tiny_dir) as address, client_of(address) as client:
        first = sample(client)
        weights = {0: load_file(tiny_dir / "model.safetensors")}
        tokens, logprobs = naive_greedy(naive_module("llama"), PROMPT, first.versions, weights)
        assert list(first.token_ids) == tokens
        assert first.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert first.versions == (0,) * len(first.token_ids)
        client.update_weights(tiny_weights(tiny_dir, tmp_path / "w", 1.5), 4)
        later = sample(client)
        assert later.versions == (4,) * len(later.token_ids) and later.logprobs != first.logprobs
        params = SamplingParams(max_tokens=8, seed=2**64 - 1)
        assert sample(client, params) == sample(client, params)


@pytest.mark.slow
def test_the_weights_of_a_start_are_never_version_0_of_a_run(tiny_dir: Path, tmp_path: Path) -> None:
    weights = tiny_weights(tiny_dir, tmp_path / "w", 1.5)
    with ExitStack() as whole:
        with serving(tiny_dir) as first:
            client = whole.enter_context(client_of(first))
            client.update_weights(weights, 0)
            right = sample(client, LONG)
        whole.enter_context(serving(tiny_dir, int(first.rpartition(":")[2])))
        pool = whole.enter_context(ThreadPoolExecutor())
        both = [pool.submit(sample, client, params) for params in (GREEDY, LONG)]
        assert [one.result().token_ids for one in both] == [right.token_ids[:6], right.token_ids]
        assert both[1].result().logprobs == pytest.approx(right.logprobs, abs=1e-5)


def cards(*found: Any) -> Callable[[Asked], Answer]:
    """A server that lists these models, whatever it is asked."""
    return lambda asked: Answer(200, {"data": found})


def without(route: str) -> FakeVllm:
    """A vLLM, one of whose routes answers in another form."""
    return type("Other", (FakeVllm,), {route: lambda *_: Answer(200, {})})()


UNKNOWN = "which is neither slimrl nor vLLM"


@pytest.mark.parametrize(
    ("other", "backend", "message"),
    [
        pytest.param(cards({"id": "m", "owned_by": "llamacpp"}), "slimrl", rf"/v1/models with .*, {UNKNOWN}", id="x"),
        pytest.param(cards({"id": "m", "owned_by": "llamacpp"}), "vllm", rf"/v1/models with .*, {UNKNOWN}", id="y"),
        pytest.param(cards({"owned_by": "slimrl"}), "slimrl", UNKNOWN, id="without its length"),
        pytest.param(cards(), "vllm", UNKNOWN, id="without a model"),
        pytest.param(without("v1_models"), "vllm", UNKNOWN, id="v1_models"),
        pytest.param(without("server_info"), "vllm", UNKNOWN, id="server_info"),
        pytest.param(without("weight_info"), "vllm", UNKNOWN, id="weight_info"),
        pytest.param(FakeVllm(), "slimrl", r'is vllm: set inference\.backend = "vllm"', id="the other backend"),
    ],
)
def test_a_server_of_another_kind_is_named_by_what_it_answers(other: Any, backend: Any, message: str) -> None:
    with server(other) as (url, _), client_of(url, backend) as client, pytest.raises(UserError, match=message):
        client.check()


def test_vllm_gets_new_weights_while_it_is_paused_and_every_token_its_version(tmp_path: Path) -> None:
    vllm = FakeVllm()
    with fake(vllm) as (client, asked):
        assert sample(client) == Completion((11, 11), (-0.5, -0.5), (0, 0), "length")
        client.update_weights(fake_weights(tmp_path / "w", 12), 3)
        steps = [one.path for one in asked if any(word in one.path for word in ("update", "/pause", "resume"))]
        assert steps == [
            *("/pause?mode=keep", "/start_weight_update", "/update_weights", "/finish_weight_update", "/resume")
        ]
        assert sample(client) == Completion((12, 12), (-0.5, -0.5), (3, 3), "length")
        params = next(one for one in asked if one.path == "/inference/v1/generate").body["sampling_params"]
        assert params["stop_token_ids"] == [2] and params["temperature"] == 0.0 and params["logprobs"] == 0


def test_a_reply_across_an_update_has_both_versions(tmp_path: Path) -> None:
    class Changing(FakeVllm):
        def inference_v1_generate(self, asked: Asked) -> Answer:
            return self.reply([("3", 1), ("4", 2)], "stop")

    with fake(Changing()) as (client, _):
        client.update_weights(fake_weights(tmp_path / "w", 12), 3)
        completion = sample(client)
        assert completion.versions == (3, 4, 4)
        assert completion.finish_reason == "stop"


@pytest.mark.slow
def test_vllm_that_was_started_again_gets_the_newest_weights_before_a_token_counts(tmp_path: Path) -> None:
    vllm = FakeVllm()
    with fake(vllm) as (client, asked):
        client.check()
        client.update_weights(fake_weights(tmp_path / "w", 12), 0)
        client.update_weights(fake_weights(tmp_path / "x", 13), 1)
        vllm.reset()

        async def several() -> list[Completion]:
            return await asyncio.gather(*(client.sample(PROMPT, GREEDY) for _ in range(6)))

        assert {(one.token_ids, one.versions) for one in asyncio.run(several())} == {((13, 13), (1, 1))}
        assert [one.path for one in asked].count("/update_weights") == 3  # the two, and once more for all six


@pytest.mark.slow
def test_a_restart_in_the_middle_of_an_update_is_survived(tmp_path: Path) -> None:
    class Restarting(FakeVllm):
        restarts = 1

        def update_weights(self, asked: Asked) -> Answer:
            if self.restarts:
                self.restarts -= 1
                self.reset()
            return super().update_weights(asked)

    with fake(Restarting()) as (client, _):
        client.update_weights(fake_weights(tmp_path / "w", 12), 3)
        assert sample(client).token_ids == (12, 12)


def test_weights_that_the_server_refuses_are_named_and_it_stays_paused(tmp_path: Path) -> None:
    vllm = FakeVllm()
    with fake(vllm) as (client, asked):
        client.check()
        client.update_weights(fake_weights(tmp_path / "w", 12), 3)
        with pytest.raises(UserError, match=r"the sampler at http.*/update_weights answers with status 500.*/nowhere"):
            client.update_weights(Path("/nowhere"), 4)
        assert vllm.paused
        assert [one.path for one in asked].count("/update_weights") == 2


def test_a_request_that_somebody_aborts_is_asked_again() -> None:
    class Aborting(FakeVllm):
        num = 2

        def inference_v1_generate(self, asked: Asked) -> Answer:
            self.num -= 1
            return self.reply([("default", 1)], "abort") if self.num >= 0 else super().inference_v1_generate(asked)

    with fake(Aborting()) as (client, asked):
        assert sample(client).token_ids == (11, 11)
        assert [one.path for one in asked].count("/inference/v1/generate") == 3


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (
            lambda vllm: vllm.settings["model_config"].update(logprobs_mode="raw_logprobs"),
            "--logprobs-mode processed_l",
        ),
        (lambda vllm: vllm.settings.update(weight_transfer_config=None), "--weight-transfer-config"),
        (lambda vllm: setattr(vllm, "dev_mode", False), "VLLM_SERVER_DEV_MODE=1"),
        (lambda vllm: setattr(vllm, "max_model_len", 63), "--max-model-len 64"),
        (lambda vllm: setattr(vllm, "scale_out", False), "the flag --enable-scale-out"),
    ],
)
def test_a_vllm_that_was_started_without_what_a_run_needs_is_refused_with_the_flag(
    change: Callable[[FakeVllm], None], advice: str, tmp_path: Path
) -> None:
    vllm = FakeVllm()
    change(vllm)

    def use(client: Replicas) -> None:
        client.update_weights(fake_weights(tmp_path / "w", 12), 3)
        sample(client)

    with fake(vllm) as (client, _), pytest.raises(UserError, match=advice):
        use(client)


class Wrong(FakeVllm):
    """Answers that no vLLM gives."""

    def __init__(self, reply: Answer) -> None:
        super().__init__()
        self._reply = reply

    def inference_v1_generate(self, asked: Asked) -> Answer:
        return self._reply


NO_VERSIONS = {"choices": [{"finish_reason": "stop", "token_ids": [1], "logprobs": None, "weight_versions": []}]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(Answer(200, b"<html>"), "the sampler at http://127", id="html"),
        pytest.param(Answer(200, {"choices": []}), "the sampler at http://127", id="no choice"),
        pytest.param(FakeVllm().reply([]), "the sampler at http://127", id="no tokens"),
        pytest.param(FakeVllm().reply([("three", 1)]), "the sampler at http://127", id="no number"),
        pytest.param(Answer(200, NO_VERSIONS), "the sampler at http://127", id="no versions"),
        pytest.param(Answer(400, {"error": "a prompt of 90 tokens"}), "a prompt of 90 tokens", id="refusal"),
        pytest.param(Answer(500, {"error": "it is dead"}), r"no sign of life for 0.3 s .*it is dead", id="failure"),
    ],
)
def test_an_answer_that_is_no_completion_ends_the_run_and_names_the_server(wrong: Answer, message: str) -> None:
    timeout_s = 0.3 if wrong.status == 500 else 20.0
    with fake(Wrong(wrong), timeout_s) as (client, _), pytest.raises(UserError, match=message):
        sample(client)


@pytest.mark.parametrize(
    ("paused", "trouble"), [(None, "/is_paused has not answered"), (True, "it is paused, and POST /resume lets it go")]
)
def test_a_server_that_hangs_is_named_within_its_time(paused: bool | None, trouble: str) -> None:
    hangs = threading.Event()

    def hang(asked: Asked) -> Answer:
        if paused is None or asked.path != "/is_paused":
            hangs.wait(10)
        return Answer(200, {"is_paused": paused})

    with fake(hang, timeout_s=3.0) as (client, _):
        with pytest.raises(UserError, match=rf"no sign of life for 3 s .{trouble}"):
            sample(client)
        hangs.set()


@pytest.mark.slow
def test_a_server_that_takes_its_time_is_waited_for() -> None:
    class Slow(FakeVllm):
        def inference_v1_generate(self, asked: Asked) -> Answer:
            threading.Event().wait(3.0)
            return super().inference_v1_generate(asked)

    with fake(Slow(), timeout_s=2.0) as (client, _):
        assert sample(client).token_ids == (11, 11)


@pytest.mark.slow
def test_with_few_descriptors_requests_wait_here_and_looks_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FakeVllm):
        num_open = most_open = 0
        are_open = threading.Event()

        def inference_v1_generate(self, asked: Asked) -> Answer:
            self.num_open += 1
            self.most_open = max(self.most_open, self.num_open)
            if self.most_open == 8:
                self.are_open.set()
            self.are_open.wait(10)
            threading.Event().wait(2.4)  # time for a ninth, and longer than the sampler may be silent
            self.num_open -= 1
            return super().inference_v1_generate(asked)

    async def several(client: Replicas) -> list[Completion]:
        return await asyncio.gather(*(client.sample(PROMPT, GREEDY) for _ in range(12)))

    monkeypatch.setattr("slimrl_cluster.inference.server_link.allow_descriptors", lambda num: 70)
    vllm = Slow()
    with fake(vllm, timeout_s=2.0) as (client, _):
        assert [one.token_ids for one in asyncio.run(several(client))] == [(11, 11)] * 12
    assert vllm.most_open == 8
