"""The note of a run that is resumed before its first checkpoint of RL."""

from pathlib import Path

from slimrl.launch.training import describe_restart


def test_what_is_kept_of_a_run_without_a_checkpoint_of_rl_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")  # of the steps before the interruption
    assert describe_restart(tmp_path) == f"{tmp_path} has no checkpoint to resume from: the run begins anew"
    begins = f"no checkpoint of RL yet in {tmp_path}: RL begins anew; "
    for file, kept in (
        ("held_out/base.json", "the evaluations before RL are kept"),
        ("warmup/checkpoints/step_3/progress.json", "the warm-up and the evaluations before RL are kept"),
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("{}")
        assert describe_restart(tmp_path) == begins + kept
