"""What is remembered of a search, and what it tells of a failure."""

import pytest

from slimrl.tools.base import CallAttempt
from slimrl_search.retrieval.pages import Question
from slimrl_search.wiki_search.metrics import Record, kind_of_failure, repetition

QUESTION = Question("Who?", "Ada", "ada", section="Early life")
FOUND = {"far": ["bob", "eve"], "near": ["bob", "ada"]}


def metrics(*calls: CallAttempt, question: Question = QUESTION) -> dict[str, float]:
    return Record(question, FOUND.__getitem__, [], list(calls)).metrics()


def search(query: str) -> CallAttempt:
    return CallAttempt("search_pages", (query,))


def section(section_id: str) -> CallAttempt:
    return CallAttempt("read_section", (section_id,))


WRONG = CallAttempt("read_section", ("x",), "there is no page `x`")
NO_CALL = CallAttempt("", error="there was no call")


@pytest.mark.parametrize(
    ("calls", "first", "ever"),
    [
        ([], 0.0, 0.0),
        ([search("far")], 0.0, 0.0),
        ([search("far"), search("near")], 0.0, 1.0),
        ([WRONG, search("near"), search("far")], 1.0, 1.0),
        ([CallAttempt("search_pages", ("",), "the query is empty"), search("near")], 1.0, 1.0),
    ],
)
def test_the_right_page_is_looked_for_in_what_searches_find(calls: list[CallAttempt], first: float, ever: float):
    told = metrics(*calls)
    assert (told["right_page_first"], told["right_page"]) == (first, ever)


@pytest.mark.parametrize(
    ("read", "right"), [("ada:early_life", 1.0), ("ada:full", 1.0), ("ada:work", 0.0), ("bob:early_life", 0.0)]
)
def test_the_right_section_is_the_questions_or_the_whole_page(read: str, right: float):
    assert metrics(section(read))["right_section"] == right
    assert "right_section" not in metrics(section(read), question=Question("Who?", "Ada", "ada"))
    assert not {"right_page", "right_page_first", "right_section"} & set(metrics(question=Question("Who?", "Ada", "")))


def test_attempts_are_counted():
    told = metrics(search("far"), NO_CALL, search("far"), WRONG)
    counted = {"tool_calls": 3.0, "searches": 2.0, "invalid_calls": 2.0, "invalid_share": 0.5, "repeated_calls": 1.0}
    assert {name: told[name] for name in counted} == counted


@pytest.mark.parametrize(
    ("calls", "unfinished", "kind"),
    [
        ([], 0.0, "never searched"),
        ([search("far")], 0.0, "right page not found"),
        ([search("near"), section("ada:work")], 0.0, "right page, wrong section"),
        ([search("near"), section("ada:early_life")], 0.0, "right section, wrong answer"),
        ([search("near")], 1.0, ""),
        ([], 1.0, ""),
        ([WRONG, NO_CALL], 1.0, "invalid calls only"),
        ([WRONG], 0.0, "invalid calls only"),
    ],
)
def test_failures_are_of_a_kind(calls: list[CallAttempt], unfinished: float, kind: str):
    assert kind_of_failure({**metrics(*calls), "unfinished": unfinished}) == kind


@pytest.mark.parametrize(
    ("replies", "share"),
    [
        ([], 0.0),
        (["", "one two three"], 0.0),
        (["one two three four five"], 0.0),
        (["a b c d a b c d"], 1 / 5),
        (["a b c d", "a b c d"], 0.0),  # ids come again in the next call, and rightly
        (["x " * 103], 99 / 100),
    ],
)
def test_repetition_is_the_share_of_runs_of_words_seen_before(replies: list[str], share: float):
    assert repetition(replies) == pytest.approx(share)
