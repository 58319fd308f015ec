"""A server survives clients that disconnect, a full queue, pauses, new weights under load, and a failing engine."""

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from packages.serve.tests.conftest import SLOTS, config_of, serving
from slimrl.errors import UserError
from slimrl.inference.cache import SlotCache
from slimrl.inference.engine import Engine
from slimrl_serve.command import InferenceServer, serve
from tests.inference.naive import naive_greedy, naive_module

LONG = {"prompt": list(range(10, 30)), "max_tokens": 400, "ignore_eos": True, "return_token_ids": True}


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for another thread; the bound is only there to end a test that fails."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def idle(server: InferenceServer) -> bool:
    load = server.service.thread.load
    return server.service.thread.num_open == load.running == load.waiting == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_slots_running_or_waiting(server: InferenceServer, stream: bool) -> None:
    before = server.service.metrics.disconnects._value.get()

    async def scenario() -> None:
        async with httpx.AsyncClient(base_url=server.address, timeout=30) as http:

            async def ask() -> None:
                async with http.stream("POST", "/v1/completions", json={**LONG, "n": 3, "stream": stream}) as reply:
                    async for _ in reply.aiter_lines():
                        pass

            await http.post("/pause")
            tasks = [asyncio.create_task(ask()) for _ in range(4)]
            while server.service.thread.load.waiting < 12:
                await asyncio.sleep(0.005)
            await http.post("/resume")
            while server.service.thread.load.running < SLOTS:
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
    eventually(lambda: idle(server))
    assert server.service.metrics.disconnects._value.get() > before


@pytest.mark.slow
def test_a_full_queue_is_429_and_says_when_to_come_back(tiny_dir: Path) -> None:
    with serving(tiny_dir, max_slots=1, max_queue=2) as server, httpx.Client(base_url=server.address) as http:
        http.post("/pause")

        async def scenario() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=server.address, timeout=30) as client:
                waiting = [asyncio.create_task(client.post("/v1/completions", json={"prompt": "a"})) for _ in range(3)]
                while server.service.thread.num_open < 3:
                    await asyncio.sleep(0.005)
                rejected = await client.post("/v1/completions", json={"prompt": "a"})
                await client.post("/resume")
                return [rejected, *await asyncio.gather(*waiting)]

        rejected, *served = asyncio.run(scenario())
        assert rejected.status_code == 429
        assert int(rejected.headers["retry-after"]) > 0
        assert [reply.status_code for reply in served] == [200] * 3
        assert "slimrl:requests_rejected_total 1.0" in http.get("/metrics").text


def test_a_paused_server_samples_nothing(server: InferenceServer, http: httpx.Client) -> None:
    assert http.post("/pause").json() == {"status": "paused", "version": server.service.engine.version}
    sampled = server.service.engine.counters.sampled
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/completions", json={"prompt": "a"}, timeout=0.3)
    assert server.service.engine.counters.sampled == sampled
    assert http.get("/health").status_code == 200
    assert http.post("/resume").json()["status"] == "running"
    assert http.post("/v1/completions", json={"prompt": "a"}).status_code == 200


def new_weights(tiny_dir: Path, directory: Path, scale: float) -> dict[str, torch.Tensor]:
    """A copy of the model whose weights are scaled; returns them."""
    shutil.copytree(tiny_dir, directory)
    weights = {name: tensor * scale for name, tensor in load_file(tiny_dir / "model.safetensors").items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return weights


@pytest.mark.slow
def test_weights_change_under_load_and_every_token_knows_its_version(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Engine.step

    def step_within_limit(engine: Engine, max_prefill: int) -> Any:
        """Sample about 100 tokens with each version but the last, however late this test's own thread runs."""
        if engine.version < 3 and engine.counters.sampled >= 100 * (max(engine.version, 0) + 1):
            time.sleep(0.001)
            return []
        return step(engine, max_prefill)

    weights = {-1: load_file(tiny_dir / "model.safetensors")}
    for version in (1, 2, 3):
        weights[version] = new_weights(tiny_dir, tmp_path / f"{version}", 1 + 0.1 * version)
    prompts = [[10 + i, *range(20, 40)] for i in range(8)]

    async def scenario(server: InferenceServer) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(base_url=server.address, timeout=60) as http:
            body = {"temperature": 0, "max_tokens": 60, "return_token_ids": True, "logprobs": 0, "ignore_eos": True}
            asked = [asyncio.create_task(http.post("/v1/completions", json={**body, "prompt": p})) for p in prompts]
            for version in (1, 2, 3):
                while server.service.engine.counters.sampled < 100 * version:
                    await asyncio.sleep(0.001)
                update = {"weight_dir": str(tmp_path / f"{version}"), "version": version}
                assert (await http.post("/update_weights", json=update)).json() == {
                    "status": "updated",
                    "version": version,
                }
            replies = await asyncio.gather(*asked)
            replies.append(await http.post("/v1/completions", json={**body, "prompt": prompts[0]}))
            return [reply.json()["choices"][0] for reply in replies]

    with serving(tiny_dir) as server:
        monkeypatch.setattr(Engine, "step", step_within_limit)
        choices = asyncio.run(scenario(server))
        assert idle(server)
    oracle = naive_module("llama")
    assert {version for choice in choices for version in choice["token_versions"]} == {-1, 1, 2, 3}
    assert set(choices[-1]["token_versions"]) == {3}
    for choice in choices:
        versions = choice["token_versions"]
        assert versions == sorted(versions)
        tokens, logprobs = naive_greedy(oracle, choice["prompt_token_ids"], versions, weights)
        assert choice["token_ids"] == tokens
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(logprobs, abs=1e-3)


def test_weights_that_do_not_belong_to_the_model_change_nothing(
    tiny_dir: Path, tmp_path: Path, server: InferenceServer, http: httpx.Client
) -> None:
    good = load_file(tiny_dir / "model.safetensors")
    first, *others = good
    broken = {
        "missing": {name: good[name] for name in others},
        "unknown": {**good, "surplus": good[first].clone()},
        "shape": {**good, first: good[first][:-1].clone()},
        "dtype": {name: tensor.bfloat16() for name, tensor in good.items()},
    }
    body = {"prompt": LONG["prompt"], "temperature": 0, "logprobs": 0}
    before = http.post("/v1/completions", json=body).json()["choices"]
    for name, tensors in broken.items():
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "model.safetensors").write_bytes((tiny_dir / "model.safetensors").read_bytes()[:-100])
    (tmp_path / "empty").mkdir()
    for name in (*broken, "torn", "empty"):
        reply = http.post("/update_weights", json={"weight_dir": str(tmp_path / name), "version": 9})
        assert reply.status_code == 400, name
        assert reply.json()["error"]["param"] == "weight_dir"
    assert server.service.engine.version == -1
    assert http.post("/v1/completions", json=body).json()["choices"] == before


def test_a_failed_step_costs_its_requests_and_not_the_server(
    server: InferenceServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = Engine.step

    def fail_once(engine: Engine, max_prefill: int) -> Any:
        monkeypatch.setattr(Engine, "step", step)
        raise ZeroDivisionError("a bug")

    for stream in (False, True):
        monkeypatch.setattr(Engine, "step", fail_once)
        reply = http.post("/v1/completions", json={"prompt": "a", "stream": stream})
        if stream:
            assert '"error":{"message":"The engine failed' in reply.text
        else:
            assert reply.status_code == 500
            assert reply.json()["error"]["type"] == "server_error"
    assert "a bug" in caplog.text
    assert http.post("/v1/completions", json={"prompt": "a"}).status_code == 200
    eventually(lambda: idle(server))


def test_an_engine_that_cannot_go_on_is_told_by_health(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> Any:
        raise ZeroDivisionError("a bug")

    with serving(tiny_dir) as server, httpx.Client(base_url=server.address) as http:
        monkeypatch.setattr(Engine, "step", fail)
        monkeypatch.setattr(Engine, "publish", fail)
        assert http.post("/v1/completions", json={"prompt": "a"}).status_code == 500
        eventually(lambda: server.service.thread.ended)
        for reply in (http.get("/health"), http.post("/v1/completions", json={"prompt": "a"}), http.post("/pause")):
            assert reply.status_code == 503
            assert "must be started again" in reply.json()["error"]["message"]
    assert "cannot go on" in caplog.text


@pytest.mark.slow
def test_the_command_ends_with_its_engine(tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> Any:
        raise ZeroDivisionError("a bug")

    def break_engine(address: str) -> None:
        monkeypatch.setattr(Engine, "step", fail)
        monkeypatch.setattr(Engine, "publish", fail)
        assert httpx.post(f"{address}/v1/completions", json={"prompt": "a"}).status_code == 500

    assert serve(config_of(tiny_dir), break_engine) == 1


@pytest.mark.slow
def test_a_cache_that_does_not_fit_ends_the_server_before_it_serves(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> Any:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(SlotCache, "layer", fail)
    with pytest.raises(UserError, match=r"can't allocate memory.*max_slots = 4.*context_len = 512"), serving(tiny_dir):
        pass


@pytest.mark.slow
def test_metrics_count_what_happened(tiny_dir: Path) -> None:
    with serving(tiny_dir) as server, httpx.Client(base_url=server.address) as http:
        for _ in range(2):
            http.post("/v1/completions", json={"prompt": LONG["prompt"], "max_tokens": 5, "ignore_eos": True})
        lines = dict(line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines() if line[0] != "#")
        label = '{model_name="tiny"}'
        assert float(lines[f"slimrl:generation_tokens_total{label}"]) == 10
        assert float(lines[f"slimrl:prefix_cache_hits_total{label}"]) == 19
        assert float(lines[f"slimrl:prefix_cache_hit_rate{label}"]) == 0.5
        assert float(lines[f"slimrl:num_requests_running{label}"]) == 0
        assert float(lines["slimrl:time_to_first_token_seconds_count"]) == 2
        assert float(lines['slimrl:request_success_total{finished_reason="length"}']) == 2
        assert float(lines[f"slimrl:generation_tokens_per_second{label}"]) > 0


@pytest.mark.nightly
def test_the_command_serves_until_a_signal_ends_it(tiny_dir: Path) -> None:
    argv = ["inference", "--port", "0", "--model.name", str(tiny_dir), "--model.dtype", "float32", "--max_slots", "2"]
    argv += ["--context_len", "64", "--served_model_name", "tiny"]
    program = "import sys; from slimrl.cli import main; sys.exit(main())"
    with subprocess.Popen([sys.executable, "-c", program, *argv], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("tiny at http://127.0.0.1:")
        assert "2 slots of 64 tokens, cpu, float32, no API key" in line
        address = line.split()[2].removesuffix("/v1:")
        assert httpx.get(f"{address}/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


@pytest.mark.nightly
def test_a_signal_ends_the_command_while_the_model_loads(tiny_dir: Path) -> None:
    """Ctrl-C here, and SIGTERM above: both set the same event."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = """
import sys, time
from slimrl.cli import main
from slimrl_serve import service
service.load_policy = lambda config: time.sleep(600)
sys.exit(main())
"""
    argv = [sys.executable, "-c", program, "inference", "--port", str(port), "--model.name", str(tiny_dir)]
    with subprocess.Popen(argv) as process, httpx.Client() as http:
        try:
            eventually(lambda: status_of(http, f"http://127.0.0.1:{port}/health") == 503)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


def status_of(http: httpx.Client, url: str) -> int:
    """The status of an answer; 0 if nothing listens."""
    try:
        return http.get(url).status_code
    except httpx.TransportError:
        return 0
