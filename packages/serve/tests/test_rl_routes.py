"""vLLM's routes for training: pauses of three kinds, aborts, and new weights in steps, from files or a broadcast."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from packages.serve.tests.conftest import serving
from slimrl.transport.broadcast import Meeting, WeightGroup, describe_kinds, listen
from slimrl_serve.command import InferenceServer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def own(tiny_dir: Path) -> Iterator[InferenceServer]:
    """A server whose weights this module may change."""
    with serving(tiny_dir) as running:
        yield running


@pytest.fixture
def rl(own: InferenceServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=own.address, timeout=30, verify=False) as client:
        yield client
        client.post("/resume")


def post(rl: httpx.Client, path: str, body: Any = None, status: int = 200) -> Any:
    reply = rl.post(path, json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


def generate(rl: httpx.Client, max_tokens: int = 8, **more: Any) -> dict[str, Any]:
    body = {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}}
    choice: dict[str, Any] = post(rl, "/inference/v1/generate", {**body, **more})["choices"][0]
    return choice


def started(own: InferenceServer, pool: ThreadPoolExecutor, rl: httpx.Client, **more: Any) -> Future[dict[str, Any]]:
    """A long request that has begun to sample."""
    sampled = own.service.engine.counters.sampled
    future = pool.submit(generate, rl, 400, **more)
    while own.service.engine.counters.sampled == sampled:
        time.sleep(0.002)
    return future


def scaled(tiny_dir: Path, factor: float) -> dict[str, torch.Tensor]:
    return {name: tensor * factor for name, tensor in load_file(tiny_dir / "model.safetensors").items()}


def weight_dir(tiny_dir: Path, directory: Path, factor: float) -> Path:
    directory.mkdir()
    save_file(scaled(tiny_dir, factor), directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def test_a_pause_that_aborts_ends_requests_with_what_they_have(own: InferenceServer, rl: httpx.Client) -> None:
    with ThreadPoolExecutor() as pool:
        running = started(own, pool, rl)
        assert post(rl, "/pause?mode=abort")["status"] == "paused"
        choice = running.result()
        assert choice["finish_reason"] == "abort"
        assert 0 < len(choice["token_ids"]) < 400
        assert rl.get("/is_paused").json() == {"is_paused": True}
        later = pool.submit(generate, rl)
        time.sleep(0.05)
        assert not later.done()
        post(rl, "/resume")
        assert later.result()["finish_reason"] == "length"


@pytest.mark.slow
def test_a_pause_that_waits_lets_requests_end_and_holds_new_ones(own: InferenceServer, rl: httpx.Client) -> None:
    with ThreadPoolExecutor() as pool:
        running = started(own, pool, rl)
        pausing = pool.submit(post, rl, "/pause?mode=wait")
        while not own.service.thread.holding and not pausing.done():
            time.sleep(0.001)
        later = pool.submit(generate, rl)
        assert pausing.result()["status"] == "paused"
        assert running.result()["finish_reason"] == "length"
        assert len(running.result()["token_ids"]) == 400
        assert not later.done()
        post(rl, "/resume")
        assert len(later.result()["token_ids"]) == 8
        assert own.service.thread.num_open == 0


def test_a_request_is_aborted_by_its_id_whether_it_runs_or_is_held(own: InferenceServer, rl: httpx.Client) -> None:
    with ThreadPoolExecutor() as pool:
        one, other = started(own, pool, rl, request_id="one"), started(own, pool, rl, request_id="other")
        assert post(rl, "/inference/v1/abort_requests", {"request_ids": ["one", "nobody"]})["aborted"] == 1
        assert one.result()["finish_reason"] == "abort"
        pausing = pool.submit(post, rl, "/pause?mode=wait")
        while not own.service.thread.holding and not pausing.done():
            time.sleep(0.001)
        held = pool.submit(generate, rl, request_id="held")
        while own.service.thread.num_open < 2 and not other.done():
            time.sleep(0.001)
        post(rl, "/inference/v1/abort_requests", {"request_ids": ["held", "other"]})
        post(rl, "/resume")
        assert held.result()["finish_reason"] in ("abort", "length")
        assert other.result()["finish_reason"] in ("abort", "length")
        pausing.result()


def test_an_update_in_steps_changes_weights_at_its_end(
    rl: httpx.Client, own: InferenceServer, tiny_dir: Path, tmp_path: Path
) -> None:
    before = post(rl, "/weight_checker", {"action": "checksum"})["checksums"]
    post(rl, "/init_weight_transfer_engine", {"init_info": {}})
    assert post(rl, "/start_weight_update")["message"]
    directory = weight_dir(tiny_dir, tmp_path / "new", 1.5)
    assert post(rl, "/update_weights", {"update_info": {"weight_dir": str(directory)}})["status"] == "received"
    assert post(rl, "/weight_checker", {"action": "compare", "baseline": before}) == {"match": True, "mismatches": []}
    post(rl, "/finish_weight_update", {"weight_version": "7"})
    assert rl.get("/weight_info").json() == {"weight_version": "7"}
    found = post(rl, "/weight_checker", {"action": "compare", "baseline": before})
    assert not found["match"] and len(found["mismatches"]) == len(before)
    choice = generate(rl)
    assert choice["weight_versions"] == [{"version": "7", "start": 0, "end": 8}]
    assert choice["token_versions"] == [7] * 8
    # The old body of one call does the same, and gives the same checksums for the same weights.
    whole = weight_dir(tiny_dir, tmp_path / "old", 1.0)
    assert post(rl, "/update_weights", {"weight_dir": str(whole), "version": 8}) == {"status": "updated", "version": 8}
    assert post(rl, "/weight_checker", {"action": "checksum"})["checksums"] == before


@pytest.mark.slow
def test_a_version_is_default_until_one_is_given(tiny_dir: Path) -> None:
    with serving(tiny_dir) as fresh, httpx.Client(base_url=fresh.address, timeout=30) as rl:
        assert rl.get("/weight_info").json() == {"weight_version": "default"}
        assert [span["version"] for span in generate(rl)["weight_versions"]] == ["default"]
        post(rl, "/update_weight_version", {"new_version": "0"})
        assert rl.get("/weight_info").json() == {"weight_version": "0"}


def test_weights_that_are_set_to_zero_give_every_token_the_same_probability(
    rl: httpx.Client, tiny_dir: Path, tmp_path: Path
) -> None:
    assert post(rl, "/weight_checker", {"action": "reset"}) == {"status": "reset"}
    body = {"token_ids": [5, 6], "sampling_params": {"max_tokens": 1, "logprobs": 3}}
    top = post(rl, "/inference/v1/generate", body)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    assert len({round(one["logprob"], 5) for one in top}) == 1
    post(rl, "/update_weights", {"weight_dir": str(weight_dir(tiny_dir, tmp_path / "w", 1.0)), "version": 9})


def test_weights_are_not_set_to_zero_under_an_adapter(
    own: InferenceServer, rl: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own.service, "adapter", "ada")
    assert "unload it" in post(rl, "/weight_checker", {"action": "reset"}, 400)["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/finish_weight_update", None, "POST /start_weight_update comes first"),
        ("/update_weights", {"update_info": {"weight_dir": "/nope"}}, "POST /start_weight_update comes first"),
        ("/finish_weight_update", {"weight_version": "latest"}, "weight_version"),
        ("/update_weight_version", {"new_version": "-1"}, "new_version"),
        ("/weight_checker", {"action": "guess"}, "action"),
        ("/weight_checker", {"action": "compare"}, "needs a baseline"),
        ("/init_weight_transfer_engine", {"init_info": {"master_address": "127.0.0.1"}}, "master_port"),
        ("/pause?mode=soon", None, "mode"),
    ],
)
def test_a_step_that_cannot_be_done_is_refused_with_the_reason(
    rl: httpx.Client, path: str, body: Any, reason: str
) -> None:
    error = post(rl, path, body, 400)["error"]
    assert reason in error["message"] + str(error["param"])


def test_an_update_that_fails_has_ended_and_changed_nothing(rl: httpx.Client) -> None:
    before = post(rl, "/weight_checker", {"action": "checksum"})["checksums"]
    post(rl, "/start_weight_update")
    error = post(rl, "/update_weights", {"update_info": {"weight_dir": "/nope"}}, 400)["error"]
    assert "/nope is no directory" in error["message"]
    post(rl, "/finish_weight_update", {"weight_version": "3"}, 400)
    post(rl, "/start_weight_update")
    assert "lacks" in post(rl, "/finish_weight_update", {"weight_version": "3"}, 400)["error"]["message"]
    assert post(rl, "/weight_checker", {"action": "checksum"})["checksums"] == before


@contextmanager
def joined(rl: httpx.Client) -> Iterator[WeightGroup]:
    """The trainer's end of a group that the server has joined."""
    listener = listen("127.0.0.1")
    port = listener.getsockname()[1]
    info = {"master_address": "127.0.0.1", "master_port": port, "rank_offset": 1, "world_size": 2, "packed": False}
    joining = threading.Thread(target=post, args=(rl, "/init_weight_transfer_engine", {"init_info": info}))
    joining.start()
    with WeightGroup(Meeting("127.0.0.1", port, 0, 2, CPU, 20.0), listener) as group:
        joining.join()
        yield group


def test_a_trainer_that_leaves_in_the_middle_of_a_broadcast_frees_the_server(
    rl: httpx.Client, tiny_dir: Path, tmp_path: Path
) -> None:
    with joined(rl):  # the trainer sends nothing
        post(rl, "/start_weight_update")
        with pytest.raises(httpx.ReadTimeout):
            rl.post("/update_weights", json={"update_info": describe_kinds(scaled(tiny_dir, 0.5))}, timeout=0.5)
        directory = weight_dir(tiny_dir, tmp_path / "next", 0.25)
        body = {"weight_dir": str(directory), "version": 6}
        assert rl.post("/update_weights", json=body, timeout=10).json()["version"] == 6
        post(rl, "/start_weight_update")
        refused = post(rl, "/update_weights", {"update_info": describe_kinds(scaled(tiny_dir, 0.5))}, 400)
        assert "There is no group to receive in" in refused["error"]["message"]


def test_weights_come_by_broadcast_in_parts_of_any_size(rl: httpx.Client, tiny_dir: Path, tmp_path: Path) -> None:
    weights = scaled(tiny_dir, 0.5)
    with joined(rl) as group, ThreadPoolExecutor() as pool:
        assert "no tensor" not in post(rl, "/start_weight_update")["message"]
        names = list(weights)
        for part in (names[:2], names[2:]):
            tensors = {name: weights[name] for name in part}
            updating = pool.submit(post, rl, "/update_weights", {"update_info": describe_kinds(tensors)})
            group.send(tensors.values())
            assert updating.result()["status"] == "received"
        post(rl, "/finish_weight_update", {"weight_version": "4"})
        by_broadcast = post(rl, "/weight_checker", {"action": "checksum"})["checksums"]
        # What the model has not is refused before anything is received, so that nobody waits for it.
        post(rl, "/start_weight_update")
        wrong = describe_kinds({"model.norm.weight": torch.zeros(10**9, device="meta")})
        assert "has the shape" in post(rl, "/update_weights", {"update_info": wrong}, 400)["error"]["message"]
    directory = weight_dir(tiny_dir, tmp_path / "same", 0.5)
    post(rl, "/update_weights", {"weight_dir": str(directory), "version": 5})
    assert post(rl, "/weight_checker", {"action": "checksum"})["checksums"] == by_broadcast
