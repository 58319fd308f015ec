"""Help, dry runs and refusals that need no model, which come before PyTorch is imported: within a second of CPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from slimrl import cli
from tests.commands.early import HEAVY, make_run, run

ENV = "--orchestrator.env.0.id"
RL = ("rl", ENV, "reverse-text", "--model.name", "smollm2-135m", "--max_steps", "2")
NUMBERS = (*HEAVY, "numpy")
SCREEN = (*NUMBERS, "rich")
ASKED = {
    "--help": (*HEAVY, "pydantic"),
    "rl --help": (*SCREEN, "yaml", "pydantic_settings"),
    f"rl {ENV} reverse-text --dry-run": SCREEN,
    **{f"{name} --help": HEAVY for name in ("eval", "sft", "trainer", "compare")},
    "init --help": (*NUMBERS, "pydantic"),
}
REFUSED = {
    "a directory with a run": ((), "already holds a run. Continue it with `--resume`", HEAVY),
    "an unknown environment": ((ENV, "reverse-txt"), "Did you mean `reverse-text`", HEAVY),
    "an unknown setting": (("--sed", "3"), "Did you mean `seed`", SCREEN),
    "a directory that cannot be": ((), "choose another --output_dir", HEAVY),
    "a GPU": (("--model.device", "cuda:7"), "no driver shows a GPU on this machine", HEAVY),
    "an unknown model": (("--model.name", "no/such/model/here"), "no/such/model/here", NUMBERS),
    # Missing extras.
    "peft": (("--model.lora.rank", "4"), "needs the extra [", HEAVY),
    "wandb": (("--wandb.project", "p"), "needs the extra [", HEAVY),
    "uvicorn": (("--deployment.type", "processes"), "needs the extra [", HEAVY),
}
FAST = ("--help", "rl --help", f"rl {ENV} reverse-text --dry-run", "a directory with a run", "peft")


def with_marks(names: dict) -> list:
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("words", with_marks(ASKED))
def test_asking_needs_no_pytorch(words: str) -> None:
    _, last = run(*words.split(), heavy=ASKED[words])
    assert last == "0 []"


@pytest.mark.parametrize("case", with_marks(REFUSED))
def test_a_refusal_needs_no_pytorch(case: str, tmp_path: Path) -> None:
    if case == "a GPU" and any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    words, reason, heavy = REFUSED[case]
    a_run = make_run(tmp_path / "run")
    places = {"a directory with a run": a_run, "a directory that cannot be": a_run / "metrics.jsonl" / "below"}
    directory = places.get(case, tmp_path / "new")
    said, last = run(*RL, *words, "--output_dir", directory, missing=case if case.isalpha() else "", heavy=heavy)
    assert reason in said and last == "2 []"
    assert not (tmp_path / "new").exists()


def test_a_directory_in_use_is_refused_at_once(tmp_path: Path) -> None:
    held = (
        "from filelock import FileLock; import sys; l = FileLock(sys.argv[1]); l.acquire(); print('held', flush=True)"
    )
    path = tmp_path / "run" / ".lock"
    path.parent.mkdir()
    wait = f"{held}; sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", wait, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    said, last = run(*RL, "--output_dir", path.parent)
    holder.communicate("")
    assert f"({holder.pid}) is at work in" in said or sys.platform != "linux"
    assert "is at work in" in said and last == "2 []"


def test_a_world_size_without_torchrun_hides_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")  # as schedulers set it
    said, last = run(*RL, "--output_dir", make_run(tmp_path / "run"))
    assert "already holds a run" in said and last == "2 []"


NAMES = {"--model.name": "smollm2-135m", "--teacher.name": "smollm2-135m"}


@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize("flag", NAMES)
@pytest.mark.parametrize("name", ["./missing", "smolm2-135m", "missing.gguf"])
def test_a_name_of_no_model_is_refused_with_its_setting(
    dry: list[str], flag: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for pair in {**NAMES, flag: name}.items() for word in pair]
    argv = ["rl", ENV, "reverse-text", "--teacher.type", "model", *words, "--output_dir", str(tmp_path / "out"), *dry]
    assert cli.run(argv) == 2
    error = capsys.readouterr().err
    assert f"{flag[2:]} " in error and name in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize("key", ["path", "val_path"])
@pytest.mark.parametrize("name", ["missing.jsonl", "missing.parquet", "", "latin.jsonl"])
def test_a_data_file_that_cannot_be_read_is_named(
    dry: list[str], key: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / name
    good.write_text('{"messages": []}\n')
    (tmp_path / "latin.jsonl").write_bytes(b'{"messages": "\xe9"}\n')
    data = {"path": good, "val_path": good, key: bad}
    words = [word for key, value in data.items() for word in (f"--data.{key}", str(value))]
    out = tmp_path / "out"
    assert cli.run(["sft", "--data.type", "file", *words, "--output_dir", str(out), *dry]) == 2
    error = capsys.readouterr().err
    assert str(bad) in error
    assert key in error or "UTF-8" in error
    assert not out.exists()
