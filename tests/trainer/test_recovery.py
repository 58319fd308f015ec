"""What a resumed run does about damage: it uses the newest whole checkpoint, and names every damaged file."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from slimrl.config.run import CkptConfig
from slimrl.errors import UserError
from slimrl.io.checksums import SUMS, find_damage
from slimrl.trainer.checkpoint import load_checkpoint
from slimrl.trainer.recovery import recover
from slimrl.trainer.state import save_if_due, save_missing_weights
from tests.trainer.policies import tiny_state
from tests.trainer.test_checkpoint import optimizer_after, progress, saved, steps_on_disk, weights_of

OF_ANOTHER = "its run_id is not this run's, so another run has saved it"


def recovered(output_dir: Path) -> list[str]:
    notes: list[str] = []
    assert recover(output_dir, notes.append)
    return notes


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0 if path.name == SUMS else len(content) // 3] ^= 1
    path.write_bytes(content)


def two_runs(tmp_path: Path, step: int) -> tuple[Path, Path]:
    """A run with a checkpoint after one step, and another run with one after `step` steps."""
    own, other = tmp_path / "own", tmp_path / "other"
    for directory, saved_at in ((own, 1), (other, step)):
        directory.mkdir()
        (directory / "metrics.jsonl").write_text(json.dumps({"step": 0, "time": directory.name}) + "\n")
        saved(directory, saved_at)
    return own, other


def test_of_whole_checkpoints_nothing_is_said(tmp_path):
    assert not recover(tmp_path, print)
    saved(tmp_path, 1, 2)
    assert recovered(tmp_path) == []
    (tmp_path / "checkpoints" / "step_2" / SUMS).unlink()  # by its user, as the file itself says
    assert recovered(tmp_path) == []


@pytest.mark.parametrize("name", ["state.pt", "progress.json", SUMS])
def test_a_damaged_checkpoint_is_named_and_set_aside_and_the_one_before_is_used(tmp_path, name):
    saved(tmp_path, 1, 3, 5)
    for step in (3, 5):
        change_a_byte(tmp_path / "checkpoints" / f"step_{step}" / name)
    second, first = recovered(tmp_path)
    assert f"step_5 cannot be used: {'its ' * (name == SUMS)}{name} is" in second
    assert "step_1: 4 steps trained" in second
    assert "step_3 cannot be used" in first and "step_1: 2 steps trained" in first
    assert steps_on_disk(tmp_path) == {"step_1", "damaged_step_3", "damaged_step_5"}
    restored = optimizer_after(0)
    assert load_checkpoint(tmp_path, restored) == progress(1)
    assert torch.equal(weights_of(restored), weights_of(optimizer_after(1)))
    saved(tmp_path, 3)
    change_a_byte(tmp_path / "checkpoints" / "step_3" / name)
    assert len(recovered(tmp_path)) == 1  # also when there is one of that name already


def test_without_a_whole_checkpoint_nothing_is_touched(tmp_path):
    saved(tmp_path, 1, 2)
    change_a_byte(tmp_path / "checkpoints" / "step_1" / "state.pt")
    (tmp_path / "checkpoints" / "step_2" / "progress.json").unlink()
    for _ in range(2):
        with pytest.raises(UserError, match=r"no checkpoint in .*2: progress\.json is missing; step_1: state\.pt is"):
            recover(tmp_path, print)
    assert steps_on_disk(tmp_path) == {"step_1", "step_2"}


def test_files_of_another_step_are_noticed(tmp_path):
    saved(tmp_path, 1, 2, 3)
    checkpoints = tmp_path / "checkpoints"
    shutil.copy(checkpoints / "step_2" / "state.pt", checkpoints / "step_3" / "state.pt")
    assert "state.pt is not as written" in recovered(tmp_path)[0]
    shutil.copytree(checkpoints / "step_1", checkpoints / "step_9")
    assert "progress.json is of step 1" in recovered(tmp_path)[0]
    (checkpoints / "step_2" / SUMS).unlink()
    shutil.copy(checkpoints / "step_1" / "state.pt", checkpoints / "step_2" / "state.pt")
    with pytest.raises(UserError, match=r"step_2 cannot be read \(ValueError: it is of step 1\)"):
        load_checkpoint(tmp_path, optimizer_after(0))


@pytest.mark.parametrize("step", [2, 9])
def test_a_checkpoint_of_another_run_is_set_aside_and_changes_no_file_of_this_one(tmp_path, step):
    own, other = two_runs(tmp_path, step)
    shutil.copytree(other / "checkpoints" / f"step_{step}", own / "checkpoints" / f"step_{step}")
    (said,) = recovered(own)
    assert f"step_{step} cannot be used: {OF_ANOTHER}" in said and "goes on from step_1" in said
    assert load_checkpoint(own, optimizer_after(0)) == progress(1)
    assert json.loads((own / "metrics.jsonl").read_text())["time"] == "own"
    # A directory without files of its own goes on from any checkpoint, and is that run from there on.
    copied = tmp_path / "copied"
    shutil.copytree(other / "checkpoints", copied / "checkpoints")
    assert any("metrics.jsonl is missing" in line for line in recovered(copied))
    assert (copied / "run_id").read_text() == (other / "run_id").read_text()
    assert recovered(copied) == []


def test_the_only_checkpoint_of_another_run_is_refused(tmp_path):
    own, other = two_runs(tmp_path, 2)
    shutil.rmtree(own / "checkpoints")
    shutil.copytree(other / "checkpoints", own / "checkpoints")
    with pytest.raises(UserError, match=f"step_2: {OF_ANOTHER}"):
        recover(own, print)
    assert steps_on_disk(own) == {"step_2"}


def test_a_run_that_has_lost_its_id_continues_from_its_own_checkpoint(tmp_path):
    lines = b'{"step": 0, "reward/mean": 0.25}\n{"step": 1, "reward/mean": 0.5}\n'
    (tmp_path / "metrics.jsonl").write_bytes(lines)
    saved(tmp_path, 2)
    for changed in (lines + b'{"step": 2, "reward/mean": 0.75}\n', lines.replace(b"0.25", b"7.25"), b""):
        (tmp_path / "run_id").unlink()
        (tmp_path / "metrics.jsonl").write_bytes(changed)
        recovered(tmp_path)
        assert (tmp_path / "metrics.jsonl").read_bytes() == lines


@pytest.mark.parametrize("text", ["", "x" * 32, "\u0661" * 32, "0" * 31])
def test_a_damaged_id_is_restored_from_the_checkpoint(tmp_path, text):
    saved(tmp_path, 1)
    whole = (tmp_path / "run_id").read_text()
    (tmp_path / "run_id").write_text(text, encoding="utf-8")
    assert "run_id is damaged: it is restored" in recovered(tmp_path)[0]
    assert (tmp_path / "run_id").read_text() == whole


def test_damaged_records_are_had_back_from_the_checkpoint(tmp_path):
    lines = b'{"step": 0, "loss/policy": 1.0}\n{"step": 1, "loss/policy": 2.0}\n'
    (tmp_path / "held_out").mkdir()
    (tmp_path / "held_out" / "start.json").write_bytes(b'{"name": "before RL"}')
    (tmp_path / "metrics.jsonl").write_bytes(lines)
    (tmp_path / "wandb_run_id").write_text("our-run-1f")
    saved(tmp_path, 2)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "loss/pol')  # killed
    assert recovered(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_bytes(lines.replace(b"1.0", b"7.0"))
    (tmp_path / "held_out" / "start.json").unlink()
    (tmp_path / "wandb_run_id").unlink()
    held_out, metrics, wandb = recovered(tmp_path)
    assert "metrics.jsonl is damaged: it is restored from" in metrics and "start.json is missing" in held_out
    assert (tmp_path / "metrics.jsonl").read_bytes() == lines
    assert json.loads((tmp_path / "held_out" / "start.json").read_text()) == {"name": "before RL"}
    assert "wandb_run_id is missing" in wandb and (tmp_path / "wandb_run_id").read_text() == "our-run-1f"


def from_another_run(weights: Path) -> None:
    state = tiny_state()
    state.advance(seconds=0.5)
    save_if_due(state, weights.parents[2] / "other", 1, CkptConfig())
    shutil.rmtree(weights)
    shutil.copytree(weights.parents[2] / "other" / "weights" / "step_1", weights)


def from_another_step(weights: Path) -> None:
    shutil.rmtree(weights)
    shutil.copytree(weights.with_name("step_0"), weights)


DAMAGES = {
    "a changed file": (lambda weights: change_a_byte(weights / "model.safetensors"), "model.safetensors is not as"),
    "another step": (from_another_step, "they are those of step_0"),
    "another run": (from_another_run, OF_ANOTHER),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_weights_are_saved_again_from_the_checkpoint(tmp_path, case):
    damage, said = DAMAGES[case]
    state, output_dir = tiny_state(), tmp_path / "own"
    state.history = ("sft", "rl")
    save_if_due(state, output_dir, 0, CkptConfig(keep=2))
    state.advance(seconds=0.5)
    save_if_due(state, output_dir, 1, CkptConfig(keep=2))
    weights = output_dir / "weights" / "step_1"
    before = (weights / "model.safetensors").read_bytes()
    assert recovered(output_dir) == []
    damage(weights)
    assert f"weights/step_1 cannot be used: {said}" in recovered(output_dir)[0] and not weights.exists()
    save_missing_weights(state, output_dir)
    assert (weights / "model.safetensors").read_bytes() == before and not find_damage(weights)
