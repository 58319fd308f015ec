"""Files of tensors are read into memory as they are, or refused: a damaged header costs neither memory nor a crash."""

import os
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file

from slimrl.errors import UserError
from slimrl.models.tensor_file import TensorFile

WHOLE = save({"w": torch.ones(4), "v": torch.ones(2, 3, dtype=torch.bfloat16)})


def test_a_file_that_is_truncated_before_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.ones(1000)}, path)
    reading = TensorFile(path).read()
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(UserError, match="was truncated while it was read"):
        list(reading)


@pytest.mark.parametrize("length", [0, 1, 2**24, 2**40, 2**63])
def test_a_header_of_any_length_is_not_read_into_memory(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length))
    os.truncate(path, 2**41)  # sparse: it takes no room on the disk
    with pytest.raises(UserError, match="no whole safetensors file"):
        TensorFile(path)


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
