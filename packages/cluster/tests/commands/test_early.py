"""The commands of this plug-in print their help and their refusals without PyTorch, and so in a second."""

from pathlib import Path

import pytest

from tests.commands.early import make_run, run


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("status RUN", 2),  # a run without its settings
        pytest.param("scale RUN 2", 2, marks=pytest.mark.slow),
        pytest.param("launch --help", 0, marks=pytest.mark.slow),
    ],
)
def test_status_scale_and_help_need_no_pytorch(words: str, status: int, tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    _, last = run(*(path if word == "RUN" else word for word in words.split()))
    assert last == f"{status} []"


@pytest.mark.slow
def test_help_of_a_part_needs_no_pytorch() -> None:
    said, last = run("orchestrator", "--help")
    assert last == "0 []" and said.startswith("`slimrl orchestrator` is a part of an `rl` run")
