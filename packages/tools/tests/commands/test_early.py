"""The commands of this plug-in print their help and their refusals without PyTorch, and so in a second."""

import pytest

from tests.commands.early import HEAVY, run


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("plan --on H1000 @ x", 2),
        *(
            pytest.param(words, status, marks=pytest.mark.slow)
            for words, status in (
                ("plan --help", 0),
                ("doctor --help", 0),
                ("push --help", 0),
                ("translate --help", 0),
                ("check-curve --help", 0),
                ("check --help", 0),
                ("play --help", 0),
                ("probe --help", 0),
            )
        ),
    ],
)
def test_help_and_what_is_refused_need_no_pytorch(words: str, status: int) -> None:
    _, last = run(*words.split())
    assert last == f"{status} []"


@pytest.mark.slow
def test_a_file_that_cannot_be_translated_is_told_with_little_loaded() -> None:
    said, last = run("translate", "nowhere.toml", heavy=(*HEAVY, "numpy"))
    assert "nowhere.toml" in said and last == "2 []"
