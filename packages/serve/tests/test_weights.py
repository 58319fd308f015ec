"""New weights must match the served model in every tensor, in regular files that do not change, or they are refused."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from packages.serve.tests.conftest import connected, post
from slimrl.errors import UserError
from slimrl.io.checksums import SUMS, seal
from slimrl_serve.weights import read_weights
from tests.tiny import tiny_module

EMBEDDING, HEAD, BUFFER = "model.embed_tokens.weight", "lm_head.weight", "model.rotary_emb.inv_freq"
NAME, INDEX = "model.safetensors", "model.safetensors.index.json"
SIZE = 1000


class Layer(nn.Module):
    """A model of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(SIZE), requires_grad=False)


def layer_saved(directory: Path, tensor: torch.Tensor) -> Path:
    save_file({"w": tensor}, directory / NAME)
    return directory


def saved(directory: Path, **changes: torch.Tensor) -> Path:
    """The weights of a module whose head is its embedding, with some of them replaced or added."""
    module = tiny_module("qwen3")
    tensors = dict(module.named_parameters()) | dict(changes)
    save_file({name: tensor.detach().clone() for name, tensor in tensors.items()}, directory / NAME)
    return directory


def test_the_second_name_of_a_weight_may_be_there_or_not(tmp_path: Path) -> None:
    module = tiny_module("qwen3")
    names = {name for name, _ in module.named_parameters()}
    assert HEAD not in names
    assert set(read_weights(saved(tmp_path), module)) == names
    new = module.get_parameter(EMBEDDING) + 1
    read = read_weights(saved(tmp_path, **{EMBEDDING: new, HEAD: new}), module)
    assert set(read) == names
    assert torch.equal(read[EMBEDDING], new)
    assert BUFFER not in read_weights(saved(tmp_path, **{BUFFER: module.get_buffer(BUFFER)}), module)


@pytest.mark.parametrize("name", [HEAD, BUFFER])
def test_a_second_name_or_a_buffer_cannot_hold_other_numbers(tmp_path: Path, name: str) -> None:
    module = tiny_module("qwen3")
    other = module.get_buffer(BUFFER) * 2 if name == BUFFER else module.get_parameter(EMBEDDING) + 1
    with pytest.raises(UserError, match=f"{name} .* differs"):
        read_weights(saved(tmp_path, **{name: other}), module)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, number: float) -> None:
    module = tiny_module("qwen3")
    broken = module.get_parameter(EMBEDDING).detach().clone()
    broken[3, 5] = number
    with pytest.raises(UserError, match=f"{EMBEDDING} .* NaN or infinite"):
        read_weights(saved(tmp_path, **{EMBEDDING: broken}), module)


def test_numbers_that_were_checked_stay_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    read = read_weights(layer_saved(tmp_path, torch.ones(SIZE)), Layer())
    (tmp_path / NAME).write_bytes(b"\xff" * (tmp_path / NAME).stat().st_size)
    assert torch.equal(read["w"], torch.ones(SIZE))


MAKE: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": Path.mkdir,
    "missing": lambda path: None,
}


@pytest.mark.parametrize("kind", MAKE)
def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / INDEX).write_text('{"weight_map": {"w": "part.safetensors"}}')
    MAKE[kind](tmp_path / "part.safetensors")
    with pytest.raises(UserError, match=r"part\.safetensors cannot be read"):
        read_weights(tmp_path, Layer())


def test_a_link_to_a_file_is_followed_as_caches_of_models_need(tmp_path: Path) -> None:
    layer_saved(tmp_path, torch.ones(SIZE))
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / NAME).symlink_to(tmp_path / NAME)
    assert torch.equal(read_weights(tmp_path / "snapshot", Layer())["w"], torch.ones(SIZE))


def header_of(**said: Any) -> bytes:
    """A file of safetensors whose header says this about its tensor."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **said}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4 * SIZE if said.get("data_offsets", [0, 8])[1] > 8 else 8)


INDICES: list[Any] = [
    {"weight_map": {"a": 1, "b": "x"}},
    {"weight_map": {"a": ["x"]}},
    {"weight_map": {"w": "../model.safetensors"}},
    {"weight_map": {"w": "/dev/zero"}},
    {"weight_map": {"w": "a\0b"}},
    {"weight_map": {"a": "a", "b": "b", "c": "c"}},
]
NO_FILE, OTHER_KIND = "no whole safetensors file", r"served model's has|served model is"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        *((INDEX, json.dumps(index).encode(), None) for index in INDICES),
        *((INDEX, content, None) for content in (b"[" * 100_000, b"[]", b"1" * 10_000, b"\xff")),
        (NAME, header_of(shape=[3]), NO_FILE),
        (NAME, header_of(shape=[2**40, 2**40], data_offsets=[0, 2**82]), NO_FILE),
        (NAME, header_of(dtype="F8_E4M3", shape=[4 * SIZE], data_offsets=[0, 4 * SIZE]), OTHER_KIND),
        (NAME, header_of(shape=[1] * 1000 + [SIZE], data_offsets=[0, 4 * SIZE]), OTHER_KIND),
    ],
    ids=range(14),
)
def test_impossible_files_are_refused_in_a_line(
    tmp_path: Path, name: str, content: bytes, complaint: str | None
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        read_weights(tmp_path, Layer())


def test_weights_with_checksums_are_compared_with_them(tmp_path: Path) -> None:
    seal(layer_saved(tmp_path, torch.ones(SIZE)))
    assert torch.equal(read_weights(tmp_path, Layer())["w"], torch.ones(SIZE))
    layer_saved(tmp_path, torch.full((SIZE,), 2.0))
    with pytest.raises(UserError, match=r"model\.safetensors is not as written"):
        read_weights(tmp_path, Layer())
    (tmp_path / SUMS).unlink()
    os.mkfifo(tmp_path / SUMS)
    with pytest.raises(UserError, match=r"its SHA256SUMS is missing or damaged"):  # and nobody is waited for
        read_weights(tmp_path, Layer())


def test_an_update_replaces_every_tensor_and_the_version(tiny_dir: Path, tmp_path: Path) -> None:
    weights = {name: 1.5 * tensor for name, tensor in load_file(tiny_dir / NAME).items()}
    save_file(weights, tmp_path / NAME, metadata={"format": "pt"})
    generate = {"token_ids": [5, 6], "sampling_params": {"max_tokens": 2, "ignore_eos": True}}
    with connected(tiny_dir) as (server, http):
        for version, name in ((-1, "default"), (7, "7")):
            if version > 0:
                post(http, "/update_weights", {"weight_dir": str(tmp_path), "version": version})
            assert http.get("/weight_info").json() == {"weight_version": name}
            (choice,) = post(http, "/inference/v1/generate", generate)["choices"]
            assert choice["weight_versions"] == [{"version": name, "start": 0, "end": 2}]
            assert choice["token_versions"] == [version] * 2
        served = dict(server.service.policy.module.named_parameters())
    assert served and all(torch.equal(tensor, weights[name]) for name, tensor in served.items())


def test_the_server_waits_for_no_pipe(http: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 4}')
    os.mkfifo(tmp_path / "adapter_model.safetensors")
    assert http.post("/update_weights", json={"weight_dir": str(tmp_path), "version": 1}).status_code == 400
