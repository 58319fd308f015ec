"""Which answers count as the reference."""

import pytest

from slimrl.environments.match import matches, normalised


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("1874", "1874"),
        ("In 1874.", "1874"),
        ("It was founded in 1874", "1874"),
        ("87,671", "87671"),
        ("87671 inhabitants", "87,671"),
        ("The Lighthouse Keeper!", "a lighthouse keeper"),
        ("na\u00efve Bj\u00f6rk", "naive bjork"),
        ("NATHANIEL SHILKRET", "Nathaniel Shilkret"),
        ("$500,000", "500,000"),
        ("It was Hemkra Company, I think.", "Hemkra Company"),
        ("3.5", "3.5"),
    ],
)
def test_the_same_said_otherwise_is_right(answer: str, reference: str):
    assert matches(answer, [reference])


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("", "1874"),
        ("   ", "1874"),
        ("the", "the"),  # nothing is left of either
        ("1873 or 1874", "1874"),  # no list of guesses
        ("18745", "1874"),
        ("Company Hemkra", "Hemkra Company"),
        ("Shilkret", "Nathaniel Shilkret"),  # unless it is an alias
        ("a b c d e f g h i j k l 1874", "1874"),  # no essay around it
        ("18,74", "1874"),
        ("1,874", "874"),
        ("not found", "1874"),
    ],
)
def test_something_else_is_wrong(answer: str, reference: str):
    assert not matches(answer, [reference])


def test_any_reference_counts():
    assert matches("Shilkret", ["Nathaniel Shilkret", "Shilkret"])
    assert not matches("Shilkret", [])


def test_words_are_compared_without_articles_accents_and_separators():
    assert normalised("The U.S. economy, 1,000,000 km") == ["u.s", "economy", "1000000", "km"]
