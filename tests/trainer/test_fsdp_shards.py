"""Checkpoints in shards: read by any number of processes, whole or not at all."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from slimrl.errors import UserError
from slimrl.io.checksums import SUMS, seal
from slimrl.trainer.checkpoint import load_checkpoint
from slimrl.trainer.fsdp import check_shards, load_shards, save_shards
from slimrl.trainer.recovery import recover
from tests.trainer.test_checkpoint import optimizer_after, progress, saved, weights_of

STATES = {"layer.weight": {"master": torch.arange(6.0).view(3, 2), "mean": torch.ones(3, 2)}}
EMPTY = {"layer.weight": {"master": torch.full((3, 2), math.nan), "mean": torch.full((3, 2), math.nan)}}


def save_in_two(directory: Path) -> tuple[Path, Path]:
    """Writes `STATES` as two processes write them, of which the first holds two rows."""
    paths = directory / "shard-00001.safetensors", directory / "shard-00002.safetensors"
    directory.mkdir(parents=True)
    for path, rows in zip(paths, (slice(0, 2), slice(2, 3)), strict=True):
        tensors = {f"layer.weight.{part}": tensor[rows].clone() for part, tensor in STATES["layer.weight"].items()}
        offsets = {name: {"saved_offsets": [rows.start, 0]} for name in tensors}
        save_file(tensors, path, metadata={"DCP_SHARDING_INFO": json.dumps(offsets)})
    return paths


def saved_in_shards(output_dir: Path, *steps: int) -> None:
    saved(output_dir, *steps)
    for step in steps:
        directory = output_dir / "checkpoints" / f"step_{step}"
        state = torch.load(directory / "state.pt")
        save_shards(state["optimizer"].pop("parameters"), directory / "optimizer")
        torch.save(state, directory / "state.pt")
        (directory / SUMS).unlink()
        seal(directory)


def test_shards_are_put_together(tmp_path: Path) -> None:
    save_in_two(tmp_path / "two")
    save_shards(STATES, tmp_path / "one")
    (file,) = (tmp_path / "one").iterdir()
    assert load_file(file).keys() == {"layer.weight.master", "layer.weight.mean"}  # nothing is pickled
    for name in ("two", "one"):
        found = {"layer.weight": {part: tensor.clone() for part, tensor in EMPTY["layer.weight"].items()}}
        load_shards(found, tmp_path / name)
        for part, tensor in STATES["layer.weight"].items():
            assert torch.equal(found["layer.weight"][part], tensor)


def test_a_part_that_is_missing_is_noticed(tmp_path: Path) -> None:
    first, second = save_in_two(tmp_path / "optimizer")
    second.rename(tmp_path / "second")
    with pytest.raises(ValueError, match="Size mismatch"):
        load_shards(EMPTY, tmp_path / "optimizer")
    (tmp_path / "second").rename(second)
    content = first.read_bytes()
    first.unlink()
    with pytest.raises(ValueError, match=r"a part of layer\.weight\.\w+ is missing in optimizer/"):
        check_shards(tmp_path / "optimizer")
    first.write_bytes(content[: len(content) // 2])
    with pytest.raises(SafetensorError):
        check_shards(tmp_path / "optimizer")


def test_shards_of_another_model_are_refused(tmp_path: Path) -> None:
    save_in_two(tmp_path / "optimizer")
    with pytest.raises(KeyError, match=r"the model has no layer\.weight\.master"):
        load_shards({"other": {"mean": torch.zeros(3)}}, tmp_path / "optimizer")
    with pytest.raises(RuntimeError, match=r"Missing key.*more\.mean"):
        load_shards({**EMPTY, "more": {"mean": torch.zeros(3)}}, tmp_path / "optimizer")
    with pytest.raises(ValueError, match="Size mismatch"):
        load_shards({"layer.weight": {**EMPTY["layer.weight"], "mean": torch.zeros(5)}}, tmp_path / "optimizer")


def test_one_process_resumes_what_several_have_saved(tmp_path: Path) -> None:
    saved_in_shards(tmp_path, 4)
    restored = optimizer_after(0)
    assert recover(tmp_path, pytest.fail)
    assert load_checkpoint(tmp_path, restored) == progress(4)
    assert torch.equal(weights_of(restored), weights_of(optimizer_after(4)))


def test_shards_that_cannot_be_read_are_told_of(tmp_path: Path) -> None:
    saved_in_shards(tmp_path, 2)
    (shard,) = (tmp_path / "checkpoints" / "step_2" / "optimizer").iterdir()
    shard.unlink()
    with pytest.raises(UserError, match=r"step_2 cannot be read .*there are no shards in optimizer/"):
        load_checkpoint(tmp_path, optimizer_after(0))


def test_a_damaged_shard_leads_to_the_checkpoint_before(tmp_path: Path) -> None:
    saved_in_shards(tmp_path, 1, 2)
    (shard,) = (tmp_path / "checkpoints" / "step_2" / "optimizer").iterdir()
    shard.write_bytes(shard.read_bytes()[:-8])
    notes: list[str] = []
    assert recover(tmp_path, notes.append)
    assert "step_2 cannot be used" in notes[0] and "step_1: 1 step trained again" in notes[0]
    assert load_checkpoint(tmp_path, optimizer_after(0)) == progress(1)
