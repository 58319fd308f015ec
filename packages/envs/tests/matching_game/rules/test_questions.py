"""What counts as a question."""

import pytest

from packages.envs.tests.matching_game.rules.deals import some_deals
from slimrl_envs.matching_game.rules.parser import ask_for_score
from slimrl_envs.matching_game.rules.questions import QuestionCounts, count_questions, is_question


@pytest.mark.parametrize(
    "sentence",
    [
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
    ],
)
def test_a_question_is_seen(sentence: str) -> None:
    assert is_question(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
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
    ],
)
def test_what_is_no_question_is_not_counted(sentence: str) -> None:
    assert not is_question(sentence)


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
        ([ask_for_score(some_deals(4, 1)[0], (1, 2))], QuestionCounts(1, 1, 1, 1, 1, 1)),
    ],
)
def test_counts_are_of_sentences_and_not_of_marks(messages: list[str], counts: QuestionCounts) -> None:
    assert count_questions(messages) == counts


@pytest.mark.parametrize("piece", [" ", "?", "a ", "what ", "and ", "the score ", "score for ", "please ", ".", "\n"])
def test_a_giant_message_is_counted_in_one_pass(piece: str) -> None:
    assert count_questions([piece * (100_000 // len(piece))]).messages == 1  # a slow pattern would never end
