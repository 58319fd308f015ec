"""F7: what `POST /update_weights` and `POST /load_lora_adapter` read may be anything, and may change meanwhile."""

import json
import os
import struct
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file
from torch import nn

from packages.serve.tests.adversary.test_served_requests import server  # noqa: F401  # a fixture
from slimrl.errors import UserError
from slimrl.io.checksums import SUMS, seal
from slimrl.models.adapter import read_adapter
from slimrl.models.tensor_file import TensorFile
from slimrl_serve.command import InferenceServer
from slimrl_serve.weights import read_weights

pytestmark = pytest.mark.slow

NAME, INDEX = "model.safetensors", "model.safetensors.index.json"
SIZE = 1000


class Layer(nn.Module):
    """A model of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(SIZE), requires_grad=False)


def saved(directory: Path, tensor: torch.Tensor) -> Path:
    save_file({"w": tensor}, directory / NAME)
    return directory


@pytest.mark.parametrize("change", ["truncate", "overwrite", "replace"])
def test_numbers_that_were_checked_stay_whatever_becomes_of_the_file(tmp_path: Path, change: str) -> None:
    read = read_weights(saved(tmp_path, torch.ones(SIZE)), Layer())
    match change:
        case "truncate":
            os.truncate(tmp_path / NAME, 10)
        case "overwrite":
            (tmp_path / NAME).write_bytes(b"\xff" * (tmp_path / NAME).stat().st_size)
        case "replace":
            saved(tmp_path, torch.full((SIZE,), torch.nan))
    assert torch.equal(read["w"], torch.ones(SIZE))


@pytest.mark.parametrize("change", ["truncate", "overwrite", "replace", "append"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, change: str) -> None:
    path = saved(tmp_path, torch.ones(SIZE)) / NAME
    file, content = TensorFile(path), path.read_bytes()
    reading = file.read()
    if change != "truncate":
        next(reading)
    match change:
        case "truncate":
            os.truncate(path, len(content) - 8)
        case "overwrite":
            with path.open("r+b") as writer:
                writer.seek(-4, os.SEEK_END)
                writer.write(b"\xff" * 4)
            os.utime(path, ns=(1, 1))  # writes within one tick of the file system's clock have the same time
        case "replace":
            path.unlink()
            path.write_bytes(content)
            reading = file.read()
        case "append":
            path.write_bytes(content + b"x")
    with pytest.raises(UserError, match="changed while it was read"):
        list(reading)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "directory", "link to a pipe", "missing"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / INDEX).write_text('{"weight_map": {"w": "part.safetensors"}}')
    part = tmp_path / "part.safetensors"
    match kind:
        case "pipe":
            os.mkfifo(part)
        case "socket":
            os.mknod(part, 0o140600)
        case "device":
            part.symlink_to("/dev/zero")
        case "directory":
            part.mkdir()
        case "link to a pipe":
            os.mkfifo(tmp_path / "pipe")
            part.symlink_to(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"part\.safetensors cannot be read"):
        read_weights(tmp_path, Layer())


def test_a_link_to_a_file_is_followed_as_caches_of_models_need(tmp_path: Path) -> None:
    saved(tmp_path, torch.ones(SIZE))
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
        *((NAME, header_of(shape=shape), NO_FILE) for shape in ([3], [-1, -2], [True, 2])),
        (NAME, header_of(shape=[2**40, 2**40], data_offsets=[0, 2**82]), NO_FILE),
        (NAME, header_of(data_offsets=[-8, 0]), NO_FILE),
        (NAME, header_of(shape=[1], data_offsets=[0, 4]), NO_FILE),
        (NAME, struct.pack("<Q", 9) + b'{"w": []}' + bytes(8), NO_FILE),
        (NAME, header_of(dtype="C64", shape=[SIZE // 2], data_offsets=[0, 4 * SIZE]), OTHER_KIND),
        (NAME, header_of(dtype="F8_E4M3", shape=[4 * SIZE], data_offsets=[0, 4 * SIZE]), OTHER_KIND),
        (NAME, header_of(shape=[1] * 1000 + [SIZE], data_offsets=[0, 4 * SIZE]), OTHER_KIND),
    ],
    ids=range(20),
)
def test_impossible_files_are_refused_in_a_line(
    tmp_path: Path, name: str, content: bytes, complaint: str | None
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        read_weights(tmp_path, Layer())


def test_weights_with_checksums_are_compared_with_them(tmp_path: Path) -> None:
    seal(saved(tmp_path, torch.ones(SIZE)))
    assert torch.equal(read_weights(tmp_path, Layer())["w"], torch.ones(SIZE))
    saved(tmp_path, torch.full((SIZE,), 2.0))
    with pytest.raises(UserError, match=r"model\.safetensors is not as written"):
        read_weights(tmp_path, Layer())
    (tmp_path / SUMS).unlink()
    os.mkfifo(tmp_path / SUMS)
    with pytest.raises(UserError, match=r"its SHA256SUMS is missing or damaged"):  # and nobody is waited for
        read_weights(tmp_path, Layer())


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    module = nn.Linear(2, 2)
    for name in ("a.safetensors", "b.safetensors"):
        save_file({"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}, tmp_path / name)
    (tmp_path / INDEX).write_text('{"weight_map": {"weight": "a.safetensors", "bias": "b.safetensors"}}')
    with pytest.raises(UserError, match="in several files"):
        read_weights(tmp_path, module)


@pytest.mark.parametrize("length", [0, 1, 2**24, 2**40, 2**63])
def test_a_header_of_any_length_is_not_read_into_memory(tmp_path: Path, length: int) -> None:
    (tmp_path / NAME).write_bytes(struct.pack("<Q", length))
    os.truncate(tmp_path / NAME, 2**41)  # sparse: it takes no room on the disk
    with pytest.raises(UserError, match="no whole safetensors file"):
        TensorFile(tmp_path / NAME)


WHOLE = save({"w": torch.ones(4), "v": torch.ones(2, 3, dtype=torch.bfloat16)})


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(at=st.integers(0, len(WHOLE) - 29), byte=st.integers(0, 255))
def test_a_damaged_header_is_a_line_or_harmless(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :])
    try:
        read = dict(TensorFile(path).read())
    except UserError:
        return
    assert sum(tensor.numel() * tensor.element_size() for tensor in read.values()) == 28


CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
PREFIX = "base_model.model"


def adapter(directory: Path, dtype: torch.dtype, shape: tuple[int, int] = (2, 4), **settings_: Any) -> Path:
    (directory / "adapter_config.json").write_text(json.dumps(CONFIG | settings_))
    pair = {f"{PREFIX}.0.lora_A.weight": torch.ones(shape).to(dtype), f"{PREFIX}.0.lora_B.weight": torch.ones(4, 2)}
    save_file(pair, directory / "adapter_model.safetensors")
    return directory


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int8, torch.bool, torch.float8_e4m3fn])
def test_an_adapter_of_other_numbers_is_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    module = nn.Sequential(nn.Linear(4, 4, bias=False))
    assert read_adapter(adapter(tmp_path, torch.float16), module).pairs
    with pytest.raises(UserError, match="quantised"):
        read_adapter(adapter(tmp_path, dtype), module)


def test_an_adapter_larger_than_its_rank_allows_is_refused_unread(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 4, bias=False))
    with pytest.raises(UserError, match="does not fit"):
        read_adapter(adapter(tmp_path, torch.float32, (200, 400)), module)
    with pytest.raises(UserError, match="r at most"):
        read_adapter(adapter(tmp_path, torch.float32, r=10**8), module)


@pytest.mark.parametrize(
    "config", ["[" * 100_000, '{"peft_type": "LORA", "r": ' + "9" * 10_000 + "}", " " * 2**21, "\xff"]
)
def test_an_adapters_settings_that_cannot_be_are_a_line(tmp_path: Path, config: str) -> None:
    (tmp_path / "adapter_config.json").write_bytes(config.encode("latin-1"))
    with pytest.raises(UserError, match=r"adapter_config\.json"):
        read_adapter(tmp_path, nn.Sequential(nn.Linear(4, 4)))


def test_the_server_answers_400_and_goes_on(server: InferenceServer, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / INDEX).write_text('{"weight_map": {"w": "pipe"}}')
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(CONFIG))
    os.mkfifo(tmp_path / "adapter" / "adapter_model.safetensors")
    asked: list[httpx.Response] = []
    with httpx.Client(base_url=server.address, timeout=10) as http:

        def ask() -> None:
            for directory in (tmp_path, tmp_path / "adapter"):
                asked.append(http.post("/update_weights", json={"weight_dir": str(directory), "version": 1}))

        thread = threading.Thread(target=ask)
        thread.start()
        assert httpx.get(f"{server.address}/health").status_code == 200
        thread.join()
    assert [reply.status_code for reply in asked] == [400, 400]
