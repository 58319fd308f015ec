"""Which answers count as the reference."""

import pytest

from slimrl.judges.word_match import f1, matches
from slimrl.judges.words import normalise


@pytest.mark.parametrize(
    ("answer", "reference", "question"),
    [
        ("1874", "1874", ""),
        ("In 1874.", "1874", ""),
        ("It was founded in 1874", "1874", "In which year was Hemkra founded?"),
        ("Its founder died in 1874", "1874", "When was it founded, and when did he die?"),  # a word of the same family
        ("87,671", "87671", ""),
        ("87671 inhabitants", "87,671", "How many inhabitants does it have?"),
        ("seven", "7", ""),
        ("It lies on seven hills.", "7", "On how many hills does it lie?"),
        ("The Lighthouse Keeper!", "a lighthouse keeper", ""),
        ("na\u00efve Bj\u00f6rk", "naive bjork", ""),
        ("NATHANIEL SHILKRET", "Nathaniel Shilkret", ""),
        ("$500,000", "500,000", ""),
        ("It was Hemkra Company, I think.", "Hemkra Company", ""),
        ("Hemkra and Sons", "Hemkra and Sons", ""),
        ("3.5", "3.5", ""),
        ("44", "44 years", "For how many years did it last?"),  # a word that the question has said
        ("around 44 years", "44", "For how many years did it last?"),
        ("Handel, George Frideric", "George Frideric Handel", ""),  # the same words in any order
        ("George Handel", "George Frideric Handel", ""),  # nearly the same words
        ("-5", "\u22125", ""),
        ("in 1914-1918", "1914-1918", ""),
    ],
)
def test_the_same_said_otherwise_is_right(answer: str, reference: str, question: str):
    assert matches(answer, [reference], question)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("", "1874"),
        ("   ", "1874"),
        ("the", "the"),  # nothing is left of either
        ("1873 or 1874", "1874"),  # no list of guesses
        ("Rome, Bari, Turin", "Rome"),
        ("Rome or Bari", "Rome"),
        ("Rome and Bari", "Rome"),
        ("not Rome", "Rome"),
        ("It is not in Rome.", "Rome"),
        ("It wasn\u2019t two rival bakers", "two rival bakers"),
        ("Hemkra River", "Hemkra"),  # something else that bears the name
        ("Hemkra Works", "Hemkra Company"),
        ("The Letters of Hemkra", "The Silence of Hemkra"),
        ("18745", "1874"),
        ("Shilkret", "Nathaniel Shilkret"),  # unless it is an alias
        ("i i i i i i i i i i i i i 1874", "1874"),  # no essay around it
        ("18,74", "1874"),
        ("1,874", "874"),
        ("eight", "7"),
        ("not found", "1874"),
        ("-5", "5"),
        ("Bach, George Handel", "George Handel"),  # a name more, of which f1 would be 0.8
        ("Rome, Nathaniel Shilkret", "Nathaniel Shilkret"),
    ],
)
def test_something_else_is_wrong(answer: str, reference: str):
    assert not matches(answer, [reference])


def test_any_reference_counts():
    assert matches("Shilkret", ["Nathaniel Shilkret", "Shilkret"])
    assert not matches("Shilkret", [])


def test_the_words_of_the_question_are_no_answer():
    assert not matches("Ada Hemkra was born in the town", ["Rome"], "In which town was Ada Hemkra born?")


@pytest.mark.parametrize(
    ("answer", "reference", "question"),
    [
        ("Washington, Rome", "Rome", "In which town was Ada born?"),
        ("George", "George Washington", "Who was the first president?"),
        ("Andes, Howard", "Howard", "How did Ada and Bob die?"),
    ],
)
def test_a_short_word_of_the_question_does_not_allow_every_longer_one(answer: str, reference: str, question: str):
    assert not matches(answer, [reference], question)


def test_how_many_words_must_be_the_same_can_be_set():
    assert not matches("George Handel", ["George Frideric Handel"], min_f1=0.81)
    assert matches("Handel George Frideric", ["George Frideric Handel"], min_f1=1.0)


@pytest.mark.parametrize(
    ("words", "wanted", "score"),
    [
        ("a b", "a b", 1.0),
        ("b a", "a b", 1.0),
        ("a", "a b c", 0.5),
        ("a a", "a", 2 / 3),
        ("c", "a b", 0.0),
        ("", "a", 0),
    ],
)
def test_f1_counts_each_word_as_often_as_it_occurs(words: str, wanted: str, score: float):
    assert f1(words.split(), wanted.split()) == pytest.approx(score)


def test_words_are_compared_without_articles_accents_and_separators():
    assert normalise("The U.S. economy, 1,000,000 km, twelve") == ["u.s", "economy", "1000000", "km", "12"]
