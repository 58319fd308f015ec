"""Counts and kappa against numbers worked out by hand, and files of labelled answers."""

import asyncio
import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from slimrl.errors import RolloutError, UserError
from slimrl.judges.judge import Verdict
from slimrl_search.judge.calibration import Calibration, Confusion, Labelled, calibrate, read_labelled


class Parrot:
    """A judge that says what the response says; `?` is a failure."""

    async def judge(self, question: str, response: str, references: object) -> Verdict:
        await asyncio.sleep(0)
        if response == "?":
            raise RolloutError("judge_timeout", "too slow")
        return Verdict(response == "yes")

    def offload(self) -> None:
        pass


def calibrated(*pairs: tuple[str, bool]) -> Calibration:
    labelled = [Labelled("q", response, ("r",), label) for response, label in pairs]
    return calibrate("parrot", Parrot(), labelled, 2, lambda: None)


def test_kappa_is_agreement_beyond_chance():
    # Cohen's own example: 0.7 agree, and 0.5 would by chance.
    confusion = Confusion(true_yes=20, false_yes=5, false_no=10, true_no=15)
    assert confusion.agreement.mean == 0.7 and confusion.kappa == pytest.approx(0.4)
    assert Confusion(5, 0, 0, 5).kappa == 1.0
    assert Confusion(0, 5, 5, 0).kappa == -1.0
    assert Confusion(5, 5, 5, 5).kappa == 0.0


@pytest.mark.parametrize("confusion", [Confusion(9, 0, 0, 0), Confusion(0, 0, 0, 0, failed=3)])
def test_where_nothing_is_left_to_chance_there_is_no_kappa(confusion: Confusion):
    assert math.isnan(confusion.kappa)


def test_a_failure_is_no_verdict():
    result = calibrated(("yes", True), ("yes", False), ("no", True), ("no", False), ("?", True), ("?", False))
    assert result.confusion == Confusion(1, 1, 1, 1, failed=2) and result.confusion.agreement.num == 4
    responses = {sort: [one.labelled.response for one in mistakes] for sort, mistakes in result.mistakes.items()}
    assert responses == {"false_yes": ["yes"], "false_no": ["no"], "no_verdict": ["?", "?"]}
    assert [one.failure for one in result.mistakes["no_verdict"]] == ["judge_timeout: too slow"] * 2


def test_a_file_is_read_as_it_is_written_and_with_other_names(tmp_path: Path):
    path = tmp_path / "answers.jsonl"
    answers = [Labelled("When?", "in 1874", ("1874",), True, "bare"), Labelled("Where?", "Rome", ("Bari", "B."), False)]
    rows = list(map(asdict, answers))
    rows.append({"question": "When?", "response": "", "answer": "1874", "aliases": ["in 1874"], "label": "no"})
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    read = read_labelled(path)
    assert read[:2] == answers
    assert read[2] == Labelled("When?", "", ("1874", "in 1874"), False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", ":1:  = 'not json': Input should be a dictionary"),
        ('{"question": "q", "label": "yes", "answer": "a"}', "Field required"),
        ('{"question": "q", "response": "r", "label": "yes"}', ":1: references.0 = None: Input should be a valid str"),
        ('{"question": "q", "response": "r", "references": [], "label": "yes"}', ":1: references = []: Tuple should"),
        ('{"question": "q", "response": "r", "answer": "a", "label": "maybe"}', "label = 'maybe': Input should be a"),
        ("", "has no rows"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(line: str, message: str, tmp_path: Path):
    path = tmp_path / "answers.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(UserError) as raised:
        read_labelled(path)
    assert message in str(raised.value)
