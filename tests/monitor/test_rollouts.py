import dataclasses
import json
import math
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, read_rollouts, write_rollouts
from slimrl.types import Rollout, StopReason

ROLLOUT = Rollout(
    task_id="train-7",
    token_ids_T=(5, 6, 7, 8),
    loss_mask_T=(False, False, True, True),
    logprobs_T=(0.0, 0.0, -0.1234567890123, -2.5),
    versions_T=(-1, -1, 3, 3),
    reward=0.25,
    turn_rewards=(0.25,),
    messages=({"role": "user", "content": "olá\nworld"}, {"role": "assistant", "content": "\x1b[2Jdlrow"}),
    metrics={"num_words": 2.0},
)
RECORD = RolloutRecord(ROLLOUT, advantages=(-0.5,), text="<user>olá\nworld<assistant>dlrow")


def test_rollouts_come_back_as_they_were_and_a_step_that_is_run_again_replaces_its_own(tmp_path):
    path = RunDir(tmp_path).rollouts_of(10)
    assert path == tmp_path / "rollouts" / "step_000010.jsonl"
    full = dataclasses.replace(ROLLOUT, stop_reason=StopReason.CONTEXT_FULL)
    records = [RECORD, dataclasses.replace(RECORD, advantages=(1.0,), rollout=full, has_signal=False)]
    for written in (records, [RECORD]):
        write_rollouts(path, written)
        assert read_rollouts(path) == written
    write_rollouts(path, [RECORD, RECORD])
    path.write_bytes(path.read_bytes()[:-40])  # a killed writer
    assert read_rollouts(path) == [RECORD]
    with pytest.raises(UserError, match="disk is full"):
        write_rollouts(Path("/dev/full"), [RECORD])


def test_a_failed_rollout_is_kept_with_its_reason(tmp_path):
    logprobs = (0.0, 0.0, -math.inf, math.nan)
    failed = dataclasses.replace(
        ROLLOUT, reward=math.nan, failure="timeout", failure_detail="10 s", logprobs_T=logprobs
    )
    write_rollouts(tmp_path / "r.jsonl", [RolloutRecord(failed, (), "")])
    json.loads((tmp_path / "r.jsonl").read_text(), parse_constant=pytest.fail)
    [record] = read_rollouts(tmp_path / "r.jsonl")
    assert (record.rollout.failure, record.rollout.failure_detail) == ("timeout", "10 s")
    assert repr((record.rollout.reward, record.rollout.logprobs_T)) == repr((math.nan, logprobs))


def test_the_tasks_data_is_kept_and_a_long_value_is_cut(tmp_path):
    data = {"answer": "olleh", "page": "x" * 9_000, "accepted": [1, 2.5, None], "table": [[i, "y"] for i in range(900)]}
    record = dataclasses.replace(RECORD, rollout=dataclasses.replace(ROLLOUT, task_data=data))
    write_rollouts(tmp_path / "r.jsonl", [record])
    [again] = read_rollouts(tmp_path / "r.jsonl")
    kept = again.rollout.task_data
    assert {name: kept[name] for name in ("answer", "accepted")} == {"answer": "olleh", "accepted": [1, 2.5, None]}
    assert kept["page"] == "x" * 2_000 + " …"
    assert kept["table"].startswith('[[0, "y"], [1, "y"]') and len(kept["table"]) == 2_002
