import dataclasses
import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import NEWEST, RolloutRecord, read_rollouts, thin_rollouts, write_rollouts
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


def write_steps(output_dir: Path, num: int, size: int) -> None:
    (output_dir / "rollouts").mkdir()
    for step in range(num):
        (output_dir / "rollouts" / f"step_{step:06d}.jsonl").write_bytes(b"x" * size)
        (output_dir / "rollouts" / f"step_{step:06d}.tokens.npz").write_bytes(b"x" * size)


def steps_left(output_dir: Path) -> list[int]:
    return sorted({int(path.name[5:11]) for path in (output_dir / "rollouts").iterdir()})


def test_older_steps_are_left_out_evenly_with_their_tokens_where_there_is_no_room(tmp_path):
    assert thin_rollouts(tmp_path, 1) == 0  # nothing there
    write_steps(tmp_path, 30, 100)
    assert thin_rollouts(tmp_path, 6000) == 0 and len(steps_left(tmp_path)) == 30
    assert thin_rollouts(tmp_path, 3200) == 16
    left = steps_left(tmp_path)
    assert left[0] == 0 and left[-10:] == [*range(20, 30)] and len(left) == 14
    gaps = [after - before for before, after in pairwise(left[:-9])]
    assert max(gaps) <= 2 * min(gaps)
    assert len(list((tmp_path / "rollouts").iterdir())) == 2 * len(left)


def test_a_run_that_grows_keeps_to_the_bound_and_stays_spread(tmp_path):
    write_steps(tmp_path, 1, 100)
    for step in range(1, 300):
        (tmp_path / "rollouts" / f"step_{step:06d}.jsonl").write_bytes(b"x" * 100)
        thin_rollouts(tmp_path, 4000)
    left = steps_left(tmp_path)
    gaps = [after - before for before, after in pairwise(left[:-9])]
    assert 34 <= len(left) <= 40 and max(gaps) <= 4 * min(gaps)


def test_the_first_and_the_newest_steps_stay_and_files_of_other_names_do_not_count(tmp_path):
    write_steps(tmp_path, 30, 100)
    others = ("step_000001_good.jsonl", "step_000020.mine.jsonl", "step_\u0663.jsonl", "step_000002.jsonl.bak")
    for name in others:
        (tmp_path / "rollouts" / name).write_bytes(b"x" * 9_000)
    assert thin_rollouts(tmp_path, 6000) == 0
    assert thin_rollouts(tmp_path, 1) == 19
    for name in others:
        (tmp_path / "rollouts" / name).unlink()
    assert steps_left(tmp_path) == [0, *range(30 - NEWEST, 30)]
