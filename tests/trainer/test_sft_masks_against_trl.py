"""Tokens and masks of supervised rows are TRL's, but for white space and tools' results, where there is a TRL."""

import os

import pytest

from benchmarks.checks.sft_masks_vs_trl import BREAKS, SAME, compare

TRL = os.environ.get("TEST_TRL_PYTHON", "")
# Of a completion TRL trains every token.
RESULTS = "tools, as prompt and completion"


@pytest.mark.skipif(not TRL, reason="there is no TRL: set TEST_TRL_PYTHON to an interpreter that has it")
def test_what_is_learnt_of_every_shape_is_what_trl_learns() -> None:
    rows = compare(TRL)["rows"]
    assert rows.pop(RESULTS)["read"].startswith("trained besides:")
    assert {name: row["read"] for name, row in rows.items() if not row["read"].startswith((SAME, BREAKS))} == {}
