"""Losses, gradients and advantages equal TRL's on the same numbers, and tokens and masks of supervised rows are TRL's,
but for white space and tools' results, where there is a TRL."""

import math
import os

import pytest

from benchmarks.checks import losses_vs_trl
from benchmarks.checks.sft_masks_vs_trl import BREAKS, SAME, compare

TRL = os.environ.get("TEST_TRL_PYTHON", "")
WITH_TRL = pytest.mark.skipif(not TRL, reason="there is no TRL: set TEST_TRL_PYTHON to an interpreter that has it")
# Of a completion TRL trains every token.
RESULTS = "tools, as prompt and completion"


def test_the_cases_reach_every_clip_and_cap() -> None:
    data = losses_vs_trl.batches()
    for case in losses_vs_trl.CASES:
        ours = losses_vs_trl.our_loss(case, data[case.batch])
        assert math.isfinite(ours["loss"])
        if "cispo" not in case.name and "kl_beta" not in case.name:  # these stop no gradient
            assert 0 < ours["gradient"].count(0.0) < 0.8 * len(ours["gradient"])
    assert len({case.name for case in losses_vs_trl.CASES}) == len(losses_vs_trl.CASES)


@WITH_TRL
def test_losses_gradients_and_advantages_are_those_of_trl() -> None:
    found = dict(losses_vs_trl.differences(losses_vs_trl.compare(TRL)))
    assert len(found) == 2 * len(losses_vs_trl.CASES) + len(losses_vs_trl.ADVANTAGES)
    assert {name: value for name, value in found.items() if not value < 1e-6} == {}


@WITH_TRL
def test_what_is_learnt_of_every_shape_is_what_trl_learns() -> None:
    rows = compare(TRL)["rows"]
    assert rows.pop(RESULTS)["read"].startswith("trained besides:")
    assert {name: row["read"] for name, row in rows.items() if not row["read"].startswith((SAME, BREAKS))} == {}
