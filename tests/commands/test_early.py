"""What needs no model is refused, and told, before PyTorch is imported: in a second."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.early import make_run, run


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


OTHERS = ("", "eval", "sft", "trainer", "compare", "init")
RL = ("rl", "--orchestrator.env.0.id", "reverse-text", "--model.name", "smollm2-135m", "--max_steps", "2")
REFUSED = {
    "a directory with a run": ((), "already holds a run. Continue it with `--resume`"),
    "an unknown environment": (("--orchestrator.env.0.id", "reverse-txt"), "Did you mean `reverse-text`"),
    "an unknown setting": (("--max_stepz", "3"), "max_steps"),
    "a directory that cannot be": ((), "Choose another `--output_dir`"),
    "a GPU": (("--model.device", "cuda:7"), "no driver shows a GPU on this machine"),
    "an unknown model": (("--model.name", "no/such/model/here"), "no/such/model/here"),
}


first, *others = REFUSED


@pytest.mark.parametrize("case", [first, *(pytest.param(other, marks=pytest.mark.slow) for other in others)])
def test_a_refusal_needs_no_pytorch(case: str, a_run: Path, tmp_path: Path) -> None:
    if case == "a GPU" and any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    words, reason = REFUSED[case]
    directory = a_run if case == "a directory with a run" else tmp_path / "new"
    if case == "a directory that cannot be":
        directory = a_run / "metrics.jsonl" / "below"
    said, last = run(*RL, *words, "--output_dir", directory)
    assert reason in said and last == "2 []"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("peft", ["--model.lora.rank", "4"]),
        pytest.param("wandb", ["--wandb.project", "p"], marks=pytest.mark.slow),
        pytest.param("trackio", ["--trackio.project", "p"], marks=pytest.mark.slow),
        pytest.param("tensorboard", ["--tensorboard.enabled"], marks=pytest.mark.slow),
        pytest.param("uvicorn", ["--deployment.type", "processes"], marks=pytest.mark.slow),
    ],
)
def test_a_missing_extra_is_named_before_anything_is_imported(module: str, words: list[str], tmp_path: Path) -> None:
    said, last = run(*RL, *words, "--output_dir", tmp_path / "new", missing=module)
    assert "needs the extra [" in said and last == "2 []"


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


@pytest.mark.parametrize(
    "words", ["rl --help", *(pytest.param(f"{one} --help", marks=pytest.mark.slow) for one in OTHERS)]
)
def test_help_needs_no_pytorch(words: str) -> None:
    _, last = run(*words.split())
    assert last == "0 []"
