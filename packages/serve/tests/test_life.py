"""A server survives clients that disconnect, a full queue, pauses, new weights under load, and a failing engine."""

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.torch import load_file, save_file

from packages.serve.tests.conftest import InferenceServer, config_of, connected, eventually, held, idle, serving
from slimrl.errors import UserError
from slimrl.inference.cache import SlotCache
from slimrl.inference.engine import Engine
from slimrl_serve.command import serve
from slimrl_serve.text import Vocabulary
from tests.inference.naive import naive_greedy, naive_module

COMPLETIONS, A = "/v1/completions", {"prompt": "a"}
LONG = {"prompt": list(range(10, 30)), "max_tokens": 400, "ignore_eos": True, "return_token_ids": True}


def fail(*arguments: object) -> Any:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_slots_running_or_waiting(server: InferenceServer, stream: bool) -> None:
    async def scenario() -> None:
        async with httpx.AsyncClient(base_url=server.address, timeout=30) as http:

            async def ask() -> None:
                async with http.stream("POST", COMPLETIONS, json={**LONG, "n": 3, "stream": stream}) as reply:
                    async for _ in reply.aiter_lines():
                        pass

            with held(server):
                tasks = [asyncio.create_task(ask()) for _ in range(4)]
                while server.service.thread.num_open < 12:
                    await asyncio.sleep(0.005)
            while not server.service.engine.busy:
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
    eventually(lambda: idle(server))


@pytest.mark.slow
def test_a_full_queue_is_429_and_says_when_to_come_back(tiny_dir: Path) -> None:
    with connected(tiny_dir, max_slots=1, max_queue=2) as (server, _):

        async def scenario() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=server.address, timeout=30) as client:
                with held(server):
                    waiting = [asyncio.create_task(client.post(COMPLETIONS, json=A)) for _ in range(3)]
                    while server.service.thread.num_open < 3:
                        await asyncio.sleep(0.005)
                    rejected = await client.post(COMPLETIONS, json=A)
                return [rejected, *await asyncio.gather(*waiting)]

        rejected, *others = asyncio.run(scenario())
        assert rejected.status_code == 429 and int(rejected.headers["retry-after"]) > 0
        assert [reply.status_code for reply in others] == [200] * 3


def test_an_engine_that_hangs_shows_no_sign_of_life(server: InferenceServer, http: httpx.Client) -> None:
    with held(server), pytest.raises(httpx.ReadTimeout):
        http.get("/is_paused", timeout=0.3)
    assert http.get("/is_paused").json() == {"is_paused": False}


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
        shutil.copytree(tiny_dir, tmp_path / f"{version}")
        weights[version] = {name: tensor * (1 + 0.1 * version) for name, tensor in weights[-1].items()}
        save_file(weights[version], tmp_path / f"{version}" / "model.safetensors", metadata={"format": "pt"})
    prompts = [[10 + i, *range(20, 40)] for i in range(8)]

    async def scenario(server: InferenceServer) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(base_url=server.address, timeout=60) as http:
            body = {**LONG, "temperature": 0, "max_tokens": 60, "logprobs": 0}
            asked = [asyncio.create_task(http.post(COMPLETIONS, json={**body, "prompt": p})) for p in prompts]
            for version in (1, 2, 3):
                while server.service.engine.counters.sampled < 100 * version:
                    await asyncio.sleep(0.001)
                update = {"weight_dir": str(tmp_path / f"{version}"), "version": version}
                reply = await http.post("/update_weights", json=update)
                assert reply.json() == {"status": "updated", "version": version}
            replies = await asyncio.gather(*asked)
            replies.append(await http.post(COMPLETIONS, json={**body, "prompt": prompts[0]}))
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


@pytest.mark.parametrize("case", ["missing", "unknown", "shape", "dtype", "torn", "empty"])
def test_weights_that_do_not_belong_to_the_model_change_nothing(
    tiny_dir: Path, tmp_path: Path, server: InferenceServer, http: httpx.Client, case: str
) -> None:
    path = tmp_path / "model.safetensors"
    good = load_file(tiny_dir / "model.safetensors")
    first, *others = good
    if case == "torn":
        path.write_bytes((tiny_dir / "model.safetensors").read_bytes()[:-100])
    elif case != "empty":
        broken = {
            "missing": {name: good[name] for name in others},
            "unknown": {**good, "surplus": good[first].clone()},
            "shape": {**good, first: good[first][:-1].clone()},
            "dtype": {name: tensor.bfloat16() for name, tensor in good.items()},
        }
        save_file(broken[case], path)
    body = {"prompt": LONG["prompt"], "temperature": 0, "logprobs": 0}
    before = http.post(COMPLETIONS, json=body).json()["choices"]
    reply = http.post("/update_weights", json={"weight_dir": str(tmp_path), "version": 9})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "weight_dir")
    assert server.service.engine.version == -1
    assert http.post(COMPLETIONS, json=body).json()["choices"] == before


class Panic(BaseException):
    """A tokenizer's panic in Rust, which is no Exception."""


FAULTS: dict[str, tuple[type, str, dict[str, Any]]] = {
    "admission": (SlotCache, "copy_prefix", {}),  # the first, before a slot has these prompts
    "a step": (Engine, "step", {}),
    "a request": (Engine, "submit", {}),
    "a decoder": (Vocabulary, "decode", {"stop": ["no such text"]}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_costs_its_requests_and_not_the_server(
    server: InferenceServer,
    http: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
    stream: bool,
) -> None:
    owner, name, more = FAULTS[fault]
    function, first = vars(owner)[name], 100 + 50 * stream
    # Prompts that share their beginnings.
    body = {"prompt": [list(range(first, first + 20 + length)) for length in range(3)], "stream": stream, **more}

    def fail_once(*arguments: object, **named: object) -> Any:
        monkeypatch.setattr(owner, name, function)
        raise Panic("a bug")

    monkeypatch.setattr(owner, name, fail_once)
    reply = http.post(COMPLETIONS, json=body)
    if stream:
        assert '"error":{"message":"The engine failed' in reply.text
    else:
        assert (reply.status_code, reply.json()["error"]["type"]) == (500, "server_error")
    assert "a bug" in caplog.text
    assert http.post(COMPLETIONS, json=body).status_code == 200
    eventually(lambda: idle(server))


@pytest.mark.slow
def test_the_command_ends_with_its_engine(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def break_engine(address: str) -> None:
        for name in ("step", "publish"):
            monkeypatch.setattr(Engine, name, fail)
        with httpx.Client(base_url=address) as http:
            assert http.post(COMPLETIONS, json=A).status_code == 500
            eventually(lambda: http.get("/health").status_code == 503)
            for reply in (http.get("/health"), http.post(COMPLETIONS, json=A), http.get("/is_paused")):
                assert reply.status_code == 503
                assert "must be started again" in reply.json()["error"]["message"]

    assert serve(config_of(tiny_dir), break_engine) == 1
    assert "cannot go on" in caplog.text


@pytest.mark.slow
def test_a_cache_that_does_not_fit_ends_the_server_before_it_serves(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> Any:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(SlotCache, "layer", fail)
    with pytest.raises(UserError, match=r"can't allocate memory.*max_slots = 4.*context_len = 512"), serving(tiny_dir):
        pass


@contextmanager
def command(program: str, model: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, after the statements of a program."""
    argv = ["inference", "--model.name", str(model), "--model.dtype", "float32", "--served_model_name", "tiny", *flags]
    program = f"import sys, time; from slimrl.cli import main; {program}; sys.exit(main())"
    with subprocess.Popen([sys.executable, "-c", program, *argv], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.nightly
def test_the_command_serves_until_a_signal_ends_it(tiny_dir: Path) -> None:
    with command("pass", tiny_dir, "--port", "0", "--max_slots", "2", "--context_len", "64") as process:
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
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    def is_loading() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 503
        return False

    endless = "from slimrl_serve import service; service.load_policy = lambda config: time.sleep(600)"
    with command(endless, tiny_dir, "--port", str(port)) as process:
        eventually(is_loading)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
