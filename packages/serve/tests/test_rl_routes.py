"""vLLM's routes for training: new weights in steps, from files or a broadcast."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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


def checksums(rl: httpx.Client) -> dict[str, str]:
    found: dict[str, str] = post(rl, "/weight_checker", {"action": "checksum"})["checksums"]
    return found


def generate(rl: httpx.Client) -> dict[str, Any]:
    body = {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 8, "temperature": 0, "ignore_eos": True}}
    choice: dict[str, Any] = post(rl, "/inference/v1/generate", body)["choices"][0]
    return choice


def scaled(tiny_dir: Path, factor: float) -> dict[str, torch.Tensor]:
    return {name: tensor * factor for name, tensor in load_file(tiny_dir / "model.safetensors").items()}


def weight_dir(tiny_dir: Path, directory: Path, factor: float) -> Path:
    directory.mkdir()
    save_file(scaled(tiny_dir, factor), directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def test_an_update_in_steps_changes_weights_at_its_end(
    rl: httpx.Client, own: InferenceServer, tiny_dir: Path, tmp_path: Path
) -> None:
    before = checksums(rl)
    post(rl, "/init_weight_transfer_engine", {"init_info": {}})
    assert post(rl, "/start_weight_update")["message"]
    directory = weight_dir(tiny_dir, tmp_path / "new", 1.5)
    assert post(rl, "/update_weights", {"update_info": {"weight_dir": str(directory)}})["status"] == "received"
    assert checksums(rl) == before
    post(rl, "/finish_weight_update", {"weight_version": "7"})
    assert rl.get("/weight_info").json() == {"weight_version": "7"}
    after = checksums(rl)
    assert after.keys() == before.keys() and not set(after.values()) & set(before.values())
    choice = generate(rl)
    assert choice["weight_versions"] == [{"version": "7", "start": 0, "end": 8}]
    assert choice["token_versions"] == [7] * 8
    # The old body of one call does the same, and gives the same checksums for the same weights.
    whole = weight_dir(tiny_dir, tmp_path / "old", 1.0)
    assert post(rl, "/update_weights", {"weight_dir": str(whole), "version": 8}) == {"status": "updated", "version": 8}
    assert checksums(rl) == before


@pytest.mark.slow
def test_a_version_is_default_until_one_is_given(tiny_dir: Path) -> None:
    with serving(tiny_dir) as fresh, httpx.Client(base_url=fresh.address, timeout=30) as rl:
        assert rl.get("/weight_info").json() == {"weight_version": "default"}
        assert [span["version"] for span in generate(rl)["weight_versions"]] == ["default"]


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/finish_weight_update", None, "POST /start_weight_update comes first"),
        ("/update_weights", {"update_info": {"weight_dir": "/nope"}}, "POST /start_weight_update comes first"),
        ("/finish_weight_update", {"weight_version": "latest"}, "weight_version"),
        ("/weight_checker", {"action": "reset"}, "action"),
        ("/update_weights", {"version": 3}, "give either weight_dir with a version, or update_info"),
        ("/update_weights", {"weight_dir": "x"}, "weight_dir needs a version"),
        ("/update_weights", {"update_info": {}}, "either weight_dir or names"),
        ("/update_weights", {"update_info": {"names": ["a"]}}, "must have the same length"),
        ("/init_weight_transfer_engine", {"init_info": {"master_address": "127.0.0.1"}}, "master_port"),
        ("/pause?mode=wait", None, "mode"),
    ],
)
def test_a_step_that_cannot_be_done_is_refused_with_the_reason(
    rl: httpx.Client, path: str, body: Any, reason: str
) -> None:
    error = post(rl, path, body, 400)["error"]
    assert reason in error["message"] + str(error["param"])


def test_an_update_that_fails_has_ended_and_changed_nothing(rl: httpx.Client) -> None:
    before = checksums(rl)
    post(rl, "/start_weight_update")
    error = post(rl, "/update_weights", {"update_info": {"weight_dir": "/nope"}}, 400)["error"]
    assert "/nope is not a directory" in error["message"]
    post(rl, "/finish_weight_update", {"weight_version": "3"}, 400)
    post(rl, "/start_weight_update")
    assert "lacks" in post(rl, "/finish_weight_update", {"weight_version": "3"}, 400)["error"]["message"]
    assert checksums(rl) == before


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


def send(rl: httpx.Client, group: WeightGroup, info: Any, tensors: dict[str, torch.Tensor], status: int = 200) -> Any:
    """Broadcast tensors, and return the server's reply."""
    with ThreadPoolExecutor() as pool:
        updating = pool.submit(post, rl, "/update_weights", {"update_info": info}, status)
        group.send(tensors.values())
        return updating.result()


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
    with joined(rl) as group:
        post(rl, "/start_weight_update")
        names = list(weights)
        for part in (names[:2], names[2:]):
            tensors = {name: weights[name] for name in part}
            assert send(rl, group, describe_kinds(tensors), tensors)["status"] == "received"
        post(rl, "/finish_weight_update", {"weight_version": "4"})
        by_broadcast = checksums(rl)
        # What the model has not is refused before anything is received, so that nobody waits for it.
        post(rl, "/start_weight_update")
        wrong = describe_kinds({"model.norm.weight": torch.zeros(10**9, device="meta")})
        assert "has the shape" in post(rl, "/update_weights", {"update_info": wrong}, 400)["error"]["message"]
    directory = weight_dir(tiny_dir, tmp_path / "same", 0.5)
    post(rl, "/update_weights", {"weight_dir": str(directory), "version": 5})
    assert checksums(rl) == by_broadcast
