"""Batches as files: what is read is what was written, to the last bit, and nothing else is taken for one."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slimrl.errors import UserError
from slimrl.transport.base import Batch
from slimrl.types import Sample
from slimrl_cluster.transport.batch_file import read_batch, write_batch

FIRST = Sample((5, 6, 8, 9), (False, False, True, True), (0.0, 0.0, -0.1, -1 / 3), (0.0, 0.0, 0.7, 1e-300), 3)
SECOND = Sample((1, 2), (False, True), (0.0, -2.5), (0.0, -0.1), 2)
STATE = {"data_position": 4, "role_means": {"guide": 0.1}, "waiting": [{"rewards": [0.1, 1 / 3]}]}
BATCH = Batch((FIRST, SECOND), 0.7, {"reward/mean": 0.1, "loss/x": math.inf, "loss/y": math.nan}, STATE)
VALUED = tuple(replace(one, rewards_T=(0.0,) * (len(one.token_ids_T) - 1) + (1.0,)) for one in BATCH.samples)


@pytest.mark.parametrize("batch", [BATCH, replace(BATCH, samples=VALUED), Batch((), 1.0)], ids=range(3))
def test_a_batch_is_read_as_it_was_written(batch: Batch, tmp_path: Path) -> None:
    write_batch(batch, tmp_path / "deep" / "b.json")
    assert repr(read_batch(tmp_path / "deep" / "b.json")) == repr(batch)  # by which nan equals nan


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    write_batch(BATCH, path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="is no batch"):
            read_batch(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda sample: sample | {"token_ids_T": [5, 6, 8]},
        lambda sample: sample | {"loss_mask_T": [False] * 4},
        lambda sample: sample | {"logprobs_T": ["much"] * 4},
        lambda sample: {name: value for name, value in sample.items() if name != "version"},
    ],
)
def test_samples_that_cannot_be_are_refused(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    write_batch(BATCH, path)
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"samples": [change(content["samples"][0])]}))
    with pytest.raises(UserError, match="is no batch"):
        read_batch(path)


def test_a_batch_with_another_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    write_batch(BATCH, path)
    path.write_text(path.read_text().replace('"orchestrator_state"', '"state_of_tomorrow"'))
    with pytest.raises(UserError, match=r"is no batch.*state_of_tomorrow"):
        read_batch(path)
