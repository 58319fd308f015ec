"""Which answers count as the reference. The answers are in files: `judge_words.jsonl` by the words that decide, with
their kind, and `judge_no.jsonl` as `slimrl judge calibrate` found them."""

import json
from pathlib import Path
from time import thread_time

import pytest

from slimrl.judges.match import matches, normalise

NAMES = ("judge_words.jsonl", "judge_no.jsonl")
LINES = [line for name in NAMES for line in Path(__file__).with_name(name).read_text("utf-8").split("\n") if line]
LABELLED = [json.loads(line) for line in LINES]


@pytest.mark.parametrize("labelled", LABELLED, ids=lambda one: one["kind"])
def test_an_answer_is_right_or_wrong_as_its_label_says(labelled: dict[str, str]) -> None:
    """With `both`, either text is compared with the other. Each text equals itself."""
    response, answer, question = (labelled[name] for name in ("response", "answer", "question"))
    is_right = {"yes": True, "no": False}[labelled["label"]]
    assert matches(response, [answer], question) is is_right
    if "both" in labelled:
        assert matches(answer, [response], question) is is_right
    assert all(matches(text, [text], question) for text in (response, answer) if normalise(text))


def test_any_reference_counts():
    assert matches("Shilkret", ["Nathaniel Shilkret", "Shilkret"]) and not matches("Shilkret", [])


@pytest.mark.slow
@pytest.mark.parametrize("part", ["!", "! ", "- ", "1,", "(", "<"])
def test_a_long_answer_takes_time_in_proportion_to_its_length(part: str):
    text = part * (16_000 // len(part))
    start = thread_time()
    assert not matches(text, ["University of Vienna"], "Where?") and not matches(f"{text}x Rome", ["Rome"])
    assert thread_time() - start < 1.5  # 0.1; 3 where it grows with the square
