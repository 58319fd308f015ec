"""Free text: names and numbers in it, and the sentences that count as questions."""

from dataclasses import replace

import pytest

from packages.envs.tests.matching_game.rules.deals import some_deals
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.language import (
    MAX_READ_CHARS,
    Parser,
    QuestionCounts,
    Topics,
    ask_for_score,
    count_questions,
    is_question,
)

AVA, DANIEL, SOFIA, ANDREI = range(4)
BLEU, ELECTRA, GLOVE, GLUE = range(4)
NO_TOPIC = Topics((), None, None)


def four() -> Deal:
    return some_deals(4, 1)[0]


@pytest.mark.parametrize(
    ("text", "answers", "topics"),
    [
        *(
            (text, False, Topics(((AVA, BLEU),), AVA, BLEU))
            for text in (
                "What is your score for Ava Li and BLEU?",
                "ava, bleu?",
                "How is   AVA  for bleu",
                "BLEU: a Method for Automatic Evaluation of Machine Translation - what about Li?",
                "Tell me Ava's BLEU score.",
                "I like Daniel for GLUE. Is Ava good for BLEU?",
            )
        ),
        ("Ava?\nFor BLEU?", False, Topics((), AVA, BLEU)),
        (
            "How are Daniel and Ava for GLUE or BLEU?",
            False,
            Topics(((DANIEL, GLUE), (DANIEL, BLEU), (AVA, GLUE), (AVA, BLEU)), DANIEL, GLUE),
        ),
        ("I have 91 for Ava and BLEU. Andrei has 3 for GLUE.", False, NO_TOPIC),
        ("Ava and BLEU.", True, Topics(((AVA, BLEU),), AVA, BLEU)),  # an answer needs no question mark
        ("Ava and BLEU: 91.", True, NO_TOPIC),  # a score that is told
        ("x " * MAX_READ_CHARS + "Ava for BLEU?", False, NO_TOPIC),  # only the beginning is read
    ],
)
def test_the_topics_of_a_text_are_the_pairs_and_names_in_its_questions(
    text: str, answers: bool, topics: Topics
) -> None:
    assert Parser(four()).topics(text, answers=answers) == topics


TWO_AVAS = ("Ava Li", "Ava Ray")
LIKE = ("Marian Lee", "Marion Kay")


@pytest.mark.parametrize(
    ("reviewers", "words", "meant"),
    [
        ((), "Dainel danil Daniell nguyem", [("reviewer", DANIEL)]),  # a slip is forgiven
        ((), "Sofja", [("reviewer", SOFIA)]),
        ((), "petrof anderi", [("reviewer", ANDREI)]),
        ((), "than sofa blue love clue value Dnl eva dani pattern", []),  # an English word is no name
        (LIKE, "Mariin", []),  # a name that may be two is nobody
        (LIKE, "Marion", [("reviewer", 1)]),
        (TWO_AVAS, "Ava", []),
        (TWO_AVAS, "Ray", [("reviewer", 1)]),
    ],
)
def test_a_word_means_one_name_or_none(reviewers: tuple[str, ...], words: str, meant: list[tuple[str, int]]) -> None:
    deal = replace(four(), reviewers=(*reviewers, *four().reviewers[len(reviewers) :]))
    assert all(Parser(deal).mentions(word) == meant for word in words.split())
    assert Parser(replace(four(), reviewers=(*TWO_AVAS, "Bo", "Cy"))).mentions("ava ray") == [("reviewer", 1)]


def test_digits_of_a_name_are_no_score_and_giant_numbers_are_not_read() -> None:
    papers, reviewers = ("A1: x", "B2", "Paper 9", "Paper 10"), ("Ann 1", "Bob 2", "Cy 3", "Dee 4")
    parser = Parser(replace(four(), papers=papers, reviewers=reviewers))
    assert parser.numbers("Ann 1 for Paper 10: 57, Bob 2 for Paper 9 has 8") == [57, 8]
    assert parser.numbers("7" * 1_000_000) == []


QUESTIONS = (
    "What is Ava's score for BLEU?",
    "Ava for BLEU?",
    "what do you have for Ethan",
    "And who is good at GLUE",
    "Please tell me the score of Ava and SWAG.",
    "I would like to know Noah for QuAC",
    "ok, how about Daniel",
    "Score for Ava and BLEU",
    "The affinity between Ethan and GLUE, please.",
    "I need the affinity between Ava Li and SWAG.",
    "Please share your score for Noah on QuAC.",
    "Next, similarity of Daniel and LLaMA",
    "I want scores for Ava.",
    "Let's talk about the score for Ethan and BLEU",
)
OTHERS = (
    "I have 91 for Ava.",
    "The score for Ava is 91.",
    "Is 91.",
    "Have a nice day.",
    "Will do.",
    "BLEU: Ava",
    "???",
    "!?",
    "",
    "Show Daniel",
    "That is what I think.",
    "Whatever you say.",
    "My score for Ava and BLEU, as you see, came out low.",
    "The affinity between Ava and BLEU: low.",
    "I don't know the score for Ethan and GLUE.",
    "I have no score for Noah.",
    "Good score for Ava!",
    "Score for Ava and BLEU 35.",
    "Thanks for the score for Ava.",
    "Your score for Ava was great.",
)


@pytest.mark.parametrize("sentence", [*QUESTIONS, *OTHERS])
def test_a_question_is_told_from_other_sentences(sentence: str) -> None:
    assert is_question(sentence) == (sentence in QUESTIONS)


@pytest.mark.parametrize(
    ("messages", "counts"),
    [
        ([], QuestionCounts()),
        (
            ["What is Ava's score for BLEU??? I have 90. And Daniel?", "Tell me the score for Ethan", "The score is 3"],
            QuestionCounts(messages=3, questions=3, distinct=3, question_marks=2, words=1, score_seeking=2),
        ),
        (["Ava for BLEU?", "ava for bleu ?", "Ava, for BLEU?"], QuestionCounts(3, 3, 1, 3, 0, 0)),
        (["?" * 1000, "? ? ? ? ?"], QuestionCounts(2, 0, 0, 6, 0, 0)),
        ([ask_for_score(four(), (1, 2))], QuestionCounts(1, 1, 1, 1, 1, 1)),
    ],
)
def test_counts_are_of_sentences_and_not_of_marks(messages: list[str], counts: QuestionCounts) -> None:
    assert count_questions(messages) == counts


@pytest.mark.parametrize("piece", [" ", "?", "a ", "what ", "and ", "the score ", "score for ", "please ", ".", "\n"])
def test_a_giant_message_is_counted_in_one_pass(piece: str) -> None:
    assert count_questions([piece * (100_000 // len(piece))]).messages == 1  # a slow pattern would never end
