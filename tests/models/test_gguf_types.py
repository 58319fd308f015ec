"""Every type of tensor that llama.cpp writes is read; any other type is refused by the name of the tensor."""

import base64
import csv
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter

from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.models.gguf import convert, tie
from slimrl.models.gguf_header import CHUNK, read_header
from slimrl.models.load import load_policy
from tests.models.gguf_files import Encode, More, write_gguf
from tests.tiny import tiny_module, tiny_tokenizer

# 256 numbers, sin(i * i), quantized by llama.cpp (xllamacpp 2026.10.11549), and the relative error of its dequantizer.
BLOCKS = list(csv.DictReader(Path(__file__).with_name("ggml_blocks.csv").read_text(encoding="utf-8").splitlines()))
NUMBERS = np.sin(np.arange(256.0) ** 2).astype(np.float32)
ROWS = CHUNK // len(NUMBERS) + 3  # more than are dequantized at once


def as_type(kind: GGMLQuantizationType) -> Encode:
    """Quantize matrices by the package gguf."""
    return lambda name, values: (gguf.quantize(values, kind), int(kind)) if values.ndim > 1 else None


@pytest.fixture(scope="module")
def file_of_all_types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a matrix of each type, of which each row has the same numbers."""
    path = tmp_path_factory.mktemp("types") / "types.gguf"
    writer = GGUFWriter(path, "llama")
    shape = (ROWS, len(NUMBERS))
    for block in BLOCKS:
        stored = np.frombuffer(base64.b64decode(block["block"]), np.int8)
        writer.add_tensor(block["name"], np.tile(stored, (ROWS, 1)), raw_shape=shape, raw_dtype=int(block["code"]))
    for kind in (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16):
        stored = gguf.quantize(np.tile(NUMBERS, (ROWS, 1)), kind)
        writer.add_tensor(kind.name, stored.view(np.int8), raw_shape=shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_matrices_of_every_type_are_read_with_the_error_of_llama_cpp(file_of_all_types: Path) -> None:
    header = read_header(file_of_all_types)
    errors = {block["name"]: float(block["error"]) for block in BLOCKS} | {"F32": 0.0, "F16": 0.0002, "BF16": 0.0013}
    assert header.tensors.keys() == errors.keys()
    for name, tensor in header.tensors.items():
        found = header.read(tensor)
        assert found.shape == (ROWS, len(NUMBERS)) and found.dtype == torch.float32
        assert torch.equal(found, found[:1].expand_as(found))
        difference = found[0] - torch.from_numpy(NUMBERS)
        assert float(difference.norm()) / np.linalg.norm(NUMBERS) == pytest.approx(errors[name], abs=1e-4)
        assert torch.equal(header.read(tensor, torch.bfloat16), found.to(torch.bfloat16))


def test_every_type_of_weights_that_the_package_gguf_knows_is_read(file_of_all_types: Path) -> None:
    read = {tensor.type for tensor in read_header(file_of_all_types).tensors.values()}
    indices_and_activations = {"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"}
    assert {kind.name for kind in GGMLQuantizationType if kind not in read} == indices_and_activations


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "BF16", "MXFP4"])
def test_a_quantized_file_becomes_bfloat16(name: str, tmp_path: Path) -> None:
    original = tiny_module("llama")
    path = write_gguf(tmp_path / "q.gguf", original, tiny_tokenizer(), encode=as_type(GGMLQuantizationType[name]))
    policy = load_policy(ModelConfig(name=str(path), device="cpu", dtype="float32"))
    for key, expected in original.state_dict().items():
        found = policy.module.state_dict()[key]
        assert torch.equal(found, found.bfloat16().float())
        assert (found - expected).norm() < 0.2 * expected.norm()


@pytest.mark.parametrize(
    ("kind", "row_bytes", "name"), [(9, 40, "Q8_1"), (27, 256, "I64"), (43, 40, "number 43"), (4, 40, "number 4")]
)
def test_a_type_without_weights_or_without_a_name_is_refused_with_the_tensor(
    kind: int, row_bytes: int, name: str, tmp_path: Path
) -> None:
    def encode(tensor: str, values: np.ndarray) -> tuple[np.ndarray, int] | None:
        return (np.zeros((len(values), row_bytes), np.uint8), kind) if tensor == "blk.1.ffn_up.weight" else None

    path = write_gguf(tmp_path / "m.gguf", tiny_module("llama"), tiny_tokenizer(), encode=encode)
    with pytest.raises(UserError, match=rf"tensor blk\.1\.ffn_up\.weight has the type {name}, .*such as Q8_0"):
        convert(path)


def test_a_gap_between_tensors_is_noticed(tmp_path: Path) -> None:
    def encode(tensor: str, values: np.ndarray) -> tuple[np.ndarray, int] | None:
        """In blocks of 128 values, as a program other than llama.cpp stores type 42."""
        stored = np.zeros((len(values), 34), np.uint8)
        return (stored, 42) if tensor == "blk.0.ffn_down.weight" else None

    path = write_gguf(tmp_path / "m.gguf", tiny_module("llama"), tiny_tokenizer(), encode=encode)
    with pytest.raises(UserError, match=r"the tensor \S+ starts at byte"):
        read_header(path)


COPIES = {"both float32": {}, "as Qwen's": {"output": "Q8_0", "token_embd": "Q5_0"}, "reversed": {"token_embd": "Q8_0"}}


@pytest.mark.parametrize("kinds", COPIES.values(), ids=COPIES)
def test_a_matrix_that_is_stored_twice_is_tied_and_its_better_copy_kept(
    kinds: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def encode(name: str, values: np.ndarray) -> tuple[np.ndarray, int] | None:
        kind = kinds.get(name.removesuffix(".weight"), "Q4_0")
        return as_type(GGMLQuantizationType[kind])(name, values) if kinds else None

    original = tiny_module("qwen3")
    embedding = original.get_input_embeddings().weight.detach()
    more = More(tensors={"output.weight": embedding.numpy()})
    path = write_gguf(tmp_path / "q.gguf", original, tiny_tokenizer(), encode=encode, more=more)
    module = load_policy(ModelConfig(name=str(path), device="cpu", dtype="float32")).module
    assert module.get_output_embeddings().weight is module.get_input_embeddings().weight
    assert sum(p.numel() for p in module.parameters()) == sum(p.numel() for p in original.parameters())
    difference = (module.get_input_embeddings().weight - embedding).norm() / embedding.norm()
    assert difference < (0.007 if kinds else 1e-7)
    better = "token_embd" if kinds == COPIES["reversed"] else "output"
    said = capsys.readouterr().err
    assert f"they differ by rounding alone ({'' if kinds else '0.0%'}" in said
    assert f"Tied; {better}.weight is kept" in said


@pytest.mark.parametrize("noise", [0.02, 1.0])
def test_an_lm_head_that_differs_from_the_embedding_stays_untied(noise: float, tmp_path: Path) -> None:
    original = tiny_module("qwen3")
    embedding = original.get_input_embeddings().weight.detach()
    head = embedding + noise * embedding.std() * torch.randn_like(embedding)
    more = More(tensors={"output.weight": head.numpy()})
    encode = as_type(GGMLQuantizationType.Q8_0)
    path = write_gguf(tmp_path / "q.gguf", original, tiny_tokenizer(), encode=encode, more=more)
    module = load_policy(ModelConfig(name=str(path), device="cpu", dtype="float32")).module
    assert not module.config.tie_word_embeddings
    assert (module.get_output_embeddings().weight - head).norm() < 0.01 * head.norm()
    assert (module.get_input_embeddings().weight - embedding).norm() < 0.01 * embedding.norm()


def test_rounding_of_every_type_is_within_the_bound_for_copies(file_of_all_types: Path) -> None:
    header = read_header(file_of_all_types)
    exact = header.tensors["F32"]
    for tensor in header.tensors.values():
        pair = {"token_embd.weight": tensor, "output.weight": replace(exact, name="output.weight")}
        tied = tie(replace(header, tensors=pair))
        assert list(tied.tensors) == ["token_embd.weight"]
        assert tied.tensors["token_embd.weight"].type == exact.type
