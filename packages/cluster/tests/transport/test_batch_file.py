"""Batches as files: what is read is what was written, to the last bit, and nothing else is taken for one."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from slimrl.errors import UserError
from slimrl.transport.base import Batch
from slimrl.types import Sample
from slimrl_cluster.transport.batch_file import FORMAT, read_batch, write_batch

FIRST = Sample((5, 6, 8, 9), (False, False, True, True), (0.0, 0.0, -0.1, -1 / 3), (0.0, 0.0, 0.7, 1e-300), 3)
SECOND = Sample((1, 2), (False, True), (0.0, -2.5), (0.0, -0.1), 2)
STATE = {"data_position": 4, "role_means": {"guide": 0.1}, "waiting": [{"rewards": [0.1, 1 / 3]}]}
BATCH = Batch((FIRST, SECOND), 0.7, {"reward/mean": 0.1, "loss/x": math.inf}, STATE)


VALUED = tuple(replace(one, rewards_T=(0.0,) * (len(one.token_ids_T) - 1) + (1.0,)) for one in BATCH.samples)


LARGE = {"waiting": "y" * 101_000_000}  # more than the metadata of the format can hold


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(BATCH, id="whole"),
        pytest.param(replace(BATCH, samples=VALUED), id="with rewards of tokens"),
        pytest.param(Batch((), 1.0), id="empty"),
        pytest.param(Batch((), 1.0, {"reward/mean": math.nan}), id="nan"),
        pytest.param(replace(BATCH, orchestrator_state=LARGE), id="large", marks=pytest.mark.slow),
    ],
)
def test_a_batch_is_read_as_it_was_written(batch: Batch, tmp_path: Path) -> None:
    write_batch(batch, tmp_path / "deep" / "b.safetensors")
    found = read_batch(tmp_path / "deep" / "b.safetensors")
    assert repr(found) == repr(batch)  # by which nan equals nan


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "b.safetensors"
    write_batch(BATCH, path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="is no batch"):
            read_batch(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors | {"lengths_B": tensors["lengths_B"] + 1},
        lambda tensors: tensors | {"lengths_B": tensors["lengths_B"] * 0},
        lambda tensors: tensors | {"versions_B": tensors["versions_B"][:1].clone()},
        lambda tensors: tensors | {"logprobs_T": tensors["logprobs_T"][:1].clone()},
        lambda tensors: tensors | {"loss_mask_T": tensors["loss_mask_T"].logical_not()},
        lambda tensors: {name: one for name, one in tensors.items() if name != "rewards_T"},
        lambda tensors: {name: one for name, one in tensors.items() if name != "content_N"},
        lambda tensors: tensors | {"content_N": tensors["content_N"].long()},
    ],
)
def test_tensors_that_do_not_go_together_are_refused(change, tmp_path: Path):
    path = tmp_path / "b.safetensors"
    write_batch(BATCH, path)
    save_file(change(load_file(path)), path, {"format": FORMAT})
    with pytest.raises(UserError, match="is no batch"):
        read_batch(path)


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("slimrl-batch-1", '{"temperature": 1.0, "metrics": {}, "orchestrator_state": {}}'),
        (FORMAT, '{"metrics": {}, "orchestrator_state": {}}'),
        (FORMAT, '{"temperature": 1.0, "metrics": {"x": "much"}, "orchestrator_state": {}}'),
        (FORMAT, '{"temperature": 1.0, "metrics": {}, "orchestrator_state": {}, "more": 1}'),
        (FORMAT, "[]"),
        (FORMAT, "{"),
    ],
)
def test_other_formats_are_refused(form, content, tmp_path):
    path = tmp_path / "b.safetensors"
    write_batch(BATCH, path)
    tensors = load_file(path) | {"content_N": torch.tensor(list(content.encode()), dtype=torch.uint8)}
    save_file(tensors, path, {"format": form})
    with pytest.raises(UserError, match="is no batch"):
        read_batch(path)
