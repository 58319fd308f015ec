"""Damage to checkpoints, weights and the files beside them is noticed (F4), and so is a progress.json that nobody wrote
(F15). `benchmarks/checks/byte_flips.py` does the same to whole runs, some hundred times."""

import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimrl.cli import run
from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.io.checksums import SUMS
from slimrl.models.history import read_history
from slimrl.models.load import load_policy, save_policy
from slimrl.models.resolve import resolve
from slimrl.trainer.checkpoint import load_checkpoint, read_progress
from slimrl.trainer.recovery import recover
from tests.orchestrator.test_orchestrator import Table
from tests.trainer.policies import tiny_policy
from tests.trainer.test_checkpoint import optimizer_after, progress, saved

pytestmark = pytest.mark.slow

FILES = ("state.pt", "progress.json", "run/metrics.jsonl", SUMS)
cheap = settings(max_examples=30, deadline=None, derandomize=True, database=None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints and the metrics that belong to them."""
    output_dir = tmp_path_factory.mktemp("whole")
    (output_dir / "metrics.jsonl").write_bytes(b'{"step": 0, "loss/policy": 1.0}\n')
    saved(output_dir, 1, 2)
    return output_dir


def recovered(output_dir: Path) -> str:
    notes: list[str] = []
    assert recover(output_dir, notes.append)
    return " ".join(notes)


@pytest.mark.slow
@cheap
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=64), st.booleans())
def test_whatever_is_written_into_a_checkpoint_is_named_and_not_used(
    whole: Path, name: str, where: float, change: bytes, cut: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        output_dir = Path(directory) / "run"
        shutil.copytree(whole, output_dir)
        path = output_dir / "checkpoints" / "step_2" / name
        content = path.read_bytes()
        place = int(where * len(content))
        damaged = content[:place] + (b"" if cut else change + content[place + len(change) :])
        path.write_bytes(damaged)
        said = recovered(output_dir)
        if damaged == content:
            assert said == "" and read_progress(output_dir) == progress(2)
        else:
            assert name in said and "step_2 cannot be used" in said and "goes on from step_1" in said
            assert load_checkpoint(output_dir, optimizer_after(0)) == progress(1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": "two"}, r"step = 'two': Input should be a valid integer"),
        ({"step": 11}, r"progress\.json is of step 11"),
        ({"step": True}, r"step = True: Input should be a valid integer"),
        ({"num_threads": 10**9}, r"num_threads = 1000000000: Input should be less than or equal to 1024"),
        ({"num_threads": 0}, r"num_threads = 0: Input should be greater"),
        ({"seconds": -1.0}, r"seconds = -1\.0: Input should be greater"),
        ({"dtype": "float16"}, r"dtype = 'float16': Input should be 'bfloat16' or 'float32'"),
        ({"more": 1}, r"more = 1: Unexpected keyword argument"),
        ({"date": "../../etc"}, r"date = '\.\./\.\./etc': String should match"),
    ],
)
def test_the_field_and_its_value_are_in_the_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    saved(tmp_path, 2)
    path = tmp_path / "checkpoints" / "step_2" / "progress.json"
    path.write_text(json.dumps({**asdict(progress(2)), **change}))
    with pytest.raises(UserError, match=said):
        read_progress(tmp_path)
    (path.parent / SUMS).unlink()
    with pytest.raises(UserError, match=rf"no checkpoint in .*{said}"):
        recover(tmp_path, print)


@pytest.mark.parametrize(
    ("state", "field"),
    [
        ({"data_position": -5}, r"data_position = -5: Input should be greater than or equal to 0"),
        ({"data_position": "5"}, "data_position = '5'"),
        ({"data_position": 5, "role_means": {"0/a": "x"}}, r"role_means\.0/a = 'x'"),
        ({"position": 5}, "position = 5: Extra inputs are not permitted"),
        ({"in_flight": [-1]}, r"in_flight\.0 = -1"),
        ({"waiting": [{"position": 0, "version": 0, "rollouts": [{"task_id": "t"}]}]}, r"waiting\.0\.rollouts\.0 = "),
    ],
)
def test_a_state_of_no_orchestrator_is_refused_by_its_field(state: dict[str, Any], field: str) -> None:
    with pytest.raises(UserError, match=rf"progress\.json cannot be what slimrl wrote: {field}.*--resume"):
        Table().orchestrator().restore(state)


def test_threads_that_no_machine_has_are_refused_in_settings_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["rl", "--model.num_threads", str(10**9), "--orchestrator.env", '[{id="reverse-text"}]', "--dry-run"]) == 2
    )
    assert "model.num_threads" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "generation_config.json", "chat_template.jinja", "slimrl.json", SUMS]
)
def test_damaged_weights_are_refused_wherever_they_are_loaded(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "step_1"
    save_policy(tiny_policy(), directory, ["sft"])
    content = bytearray((directory / name).read_bytes())
    # A bit that changes a number or a letter, and leaves JSON what it is.
    content[-30 if name == "model.safetensors" else content.index(b"a")] ^= 1
    (directory / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"step_1 is damaged: (its )?{name} is (not|missing).*delete \S*{SUMS}"):
        resolve(str(directory))
    if name in ("slimrl.json", SUMS):
        with pytest.raises(UserError, match="is damaged"):
            read_history(directory)
    if name == "model.safetensors":
        (directory / SUMS).unlink()  # as the message says, for who has changed it on purpose
        load_policy(ModelConfig(name=str(directory), device="cpu", dtype="float32"))
