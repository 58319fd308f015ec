"""Names and numbers in free text."""

import random
from dataclasses import replace

import pytest

from packages.envs.tests.matching_game.rules.deals import some_deals
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.parser import MAX_READ_CHARS, Parser, Topics

AVA, DANIEL, SOFIA, ANDREI = range(4)
BLEU, ELECTRA, GLOVE, GLUE = range(4)


def four() -> Deal:
    return some_deals(4, 1)[0]


@pytest.mark.parametrize(
    "text",
    [
        "What is your score for Ava Li and BLEU?",
        "ava, bleu?",
        "How is   AVA  for bleu",
        "BLEU: a Method for Automatic Evaluation of Machine Translation - what about Li?",
        "Tell me Ava's BLEU score.",
        "I like Daniel for GLUE. Is Ava good for BLEU?",
        "Ava?\nFor BLEU?",
    ],
)
def test_an_exact_pair_is_found(text: str) -> None:
    asked = Parser(four()).topics(text)
    assert (asked.reviewer, asked.paper) == (AVA, BLEU)


def test_of_several_pairs_the_first_comes_first() -> None:
    asked = Parser(four()).topics("How are Daniel and Ava for GLUE or BLEU?")
    assert asked.cells == ((DANIEL, GLUE), (DANIEL, BLEU), (AVA, GLUE), (AVA, BLEU))


def test_a_statement_asks_for_nothing() -> None:
    assert Parser(four()).topics("I have 91 for Ava and BLEU. Andrei has 3 for GLUE.") == Topics((), None, None)


def test_an_answer_needs_no_question_mark() -> None:
    parser = Parser(four())
    assert parser.topics("Ava and BLEU.", answers=True).cells == ((AVA, BLEU),)
    assert parser.topics("Ava and BLEU: 91.", answers=True).cells == ()  # that tells a score


@pytest.mark.parametrize(
    ("meant", "words"),
    [
        ([("reviewer", DANIEL)], "Dainel danil Daniell nguyem"),
        ([("reviewer", SOFIA)], "Sofja"),
        ([("reviewer", ANDREI)], "petrof anderi"),
        ([], "than sofa blue love clue value Dnl eva dani pattern"),
    ],
)
def test_a_slip_is_forgiven_and_an_english_word_is_no_name(meant: list[tuple[str, int]], words: str) -> None:
    assert all(Parser(four()).mentions(word) == meant for word in words.split())


@pytest.mark.parametrize(
    ("reviewers", "text", "meant"),
    [
        (("Marian Lee", "Marion Kay"), "Mariin", []),
        (("Marian Lee", "Marion Kay"), "Marion", [("reviewer", 1)]),
        (("Ava Li", "Ava Ray"), "Ava", []),
        (("Ava Li", "Ava Ray"), "ava ray", [("reviewer", 1)]),
        (("Ava Li", "Ava Ray"), "Ray", [("reviewer", 1)]),
    ],
)
def test_a_name_that_may_be_two_is_nobody(reviewers: tuple[str, ...], text: str, meant: list[object]) -> None:
    deal = replace(four(), reviewers=(*reviewers, "Sofia Patel", "Andrei Petrov"))
    assert Parser(deal).mentions(text) == meant


def test_digits_of_a_name_are_no_score() -> None:
    deal = some_deals(4, 1)[0]
    ten = replace(deal, papers=("A1: x", "B2", "Paper 9", "Paper 10"), reviewers=("Ann 1", "Bob 2", "Cy 3", "Dee 4"))
    assert Parser(ten).numbers("Ann 1 for Paper 10: 57, Bob 2 for Paper 9 has 8") == [57, 8]


def test_only_the_beginning_of_a_giant_text_is_read() -> None:
    parser = Parser(four())
    assert parser.topics("x " * MAX_READ_CHARS + "Ava for BLEU?").cells == ()
    assert parser.numbers("7" * 1_000_000) == []


def test_any_text_can_be_read() -> None:
    rng, parser = random.Random(0), Parser(four())
    pieces = ["Ava", "BLEU", "glue", " ", "?", "[accept]", "91", "\n", "ſofia", "İ", "\ud800", "what", ".", "Daniel"]
    for _ in range(300):
        text = "".join(rng.choices(pieces, k=12))
        asked = parser.topics(text)
        assert all(0 <= reviewer < 4 and 0 <= paper < 4 for reviewer, paper in asked.cells)
