"""What needs no model is refused, and told, before PyTorch is imported: in a second."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from slimrl import cli
try:
    status = cli.run(sys.argv[1:])
except SystemExit as ended:
    status = ended.code
print(status, [name for name in ("torch", "transformers", "matplotlib") if name in sys.modules], file=sys.stderr)
"""


def run(*words: object, missing: str = "") -> tuple[str, str]:
    """The output of a command, and its last line: the exit status and the heavy modules that it has imported."""
    script = SCRIPT
    if missing:
        script = f"import sys; sys.modules[{missing!r}] = None\n{script}"
    done = subprocess.run([sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=False)
    *said, last = done.stderr.strip().splitlines()
    return done.stdout + "\n".join(said), last


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    (path / "metrics.jsonl").write_text(json.dumps({"step": 0, "reward/mean": 0.5}) + "\n", encoding="utf-8")
    return path


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
    "words",
    [
        ("status", "RUN"),
        ("rl", "--help"),
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (
                ("--help",),
                ("scale", "RUN", "2"),
                ("plan", "--on", "H1000", "@", "x"),
                ("eval", "--help"),
                ("view", "--help"),
                ("plan", "--help"),
            )
        ),
    ],
    ids=" ".join,
)
def test_help_and_status_need_no_pytorch(words: tuple[str, ...], a_run: Path) -> None:
    _, last = run(*(a_run if word == "RUN" else word for word in words))
    assert last in ("0 []", "2 []")
