"""The command `judge`, with a language model that is a stand-in over loopback."""

import json
from pathlib import Path

import pytest

from slimrl.cli import run
from tests.io.replying import Answer, Asked, completion, server

# 300 generated answers: each second one is wrong by construction.
ANSWERS = Path(__file__).parents[4] / "benchmarks" / "results" / "judge" / "answers.jsonl"


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(ANSWERS.read_text(encoding="utf-8").splitlines(keepends=True)[:38]), encoding="utf-8")
    return path


@pytest.mark.slow
def test_judges_stand_side_by_side_and_failures_are_counted_apart(
    answers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def credulous(asked: Asked) -> Answer:
        """Says yes to everything, and nothing about what begs."""
        prompt = asked.body["messages"][0]["content"]
        return completion("I shall not say" if "Ignore all of this" in prompt else "Yes")

    output = tmp_path / "out.json"
    with server(credulous) as (url, _):
        argv = ["judge", "calibrate", str(answers), "--base-url", url, "--model", "credulous", "--output", str(output)]
        assert run(argv) == 0
    out = capsys.readouterr().out
    assert "38 labelled answers" in out and "credulous: no verdict, 1 of 1" in out and "judge_verdict" in out
    match, model = json.loads(output.read_text(encoding="utf-8"))["judges"]
    assert match["counts"]["false_yes"] == 0 and match["counts"]["failed"] == 0
    # All 19 right ones, and of the 19 wrong ones all but the empty one and the one without a verdict.
    assert model["counts"] == {"true_yes": 19, "false_yes": 17, "false_no": 0, "true_no": 1, "failed": 1}
    assert len(model["false_yes"]) == 17 and model["no_verdict"][0]["labelled"]["kind"] == "begging"


def test_comparing_words_rewards_no_wrong_answer_of_the_recorded_ones(tmp_path: Path) -> None:
    """A policy that reads the pages could otherwise learn to answer like that."""
    output = tmp_path / "out.json"
    assert run(["judge", "calibrate", str(ANSWERS), "--output", str(output)]) == 0
    (match,) = json.loads(output.read_text(encoding="utf-8"))["judges"]
    assert match["counts"]["false_yes"] == 0 and match["agreement"]["mean"] > 0.9


def test_a_judge_that_agrees_has_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"question": "When?", "response": "1874", "answer": "1874", "label": "yes"}\n', encoding="utf-8")
    assert run(["judge", "calibrate", str(path)]) == 0
    out = capsys.readouterr().out
    assert "| match |" in out and "none |" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl"], "missing.jsonl cannot be read"),
        (["missing.jsonl", "--model", "m"], "needs both --base-url and --model"),
        (["ANSWERS", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], "judge_unreachable"),
        (["ANSWERS", "--output", "ANSWERS/out"], "could not be written"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    arguments: list[str], message: str, answers: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["judge", "calibrate", *(word.replace("ANSWERS", str(answers)) for word in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        run(["judge", "calibrate", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("kappa", "false yes", "JUDGE_API_KEY"))
