"""The rules of Wordle against a brute-force oracle, its words, and the solver."""

import hashlib
import random
from itertools import product

import pytest

from slimrl_envs.wordle.rules import Game, feedback_of, fits
from slimrl_envs.wordle.solver import Solver, most_telling
from slimrl_envs.wordle.words import is_held_out, word_list


def feedback_by_matching(guess: str, answer: str) -> str:
    """The marks by brute force: every way to give letters of the answer to equal letters of the guess, one each, is
    looked at. The one that counts gives the most in place, then the most at all, then to the earliest."""
    ways = []
    for given in product(*[[None, *(there for there in range(5) if answer[there] == letter)] for letter in guess]):
        spent = [there for there in given if there is not None]
        if len(set(spent)) == len(spent):
            marks = ["X" if there is None else "G" if there == place else "Y" for place, there in enumerate(given)]
            ways.append((marks.count("G"), len(spent), [mark != "X" for mark in marks], "".join(marks)))
    return max(ways)[3]


@pytest.mark.parametrize(
    ("guess", "answer", "marks"),
    [
        ("crane", "crane", "GGGGG"),
        ("sound", "found", "XGGGG"),
        ("geese", "those", "XXXGG"),  # one e, in its place: none is left for the others
        ("eerie", "where", "YXYXG"),  # of three e two are there: the one in its place, then the first
        ("abbey", "babes", "YYGGX"),
        ("speed", "abide", "XXYXY"),
        ("speed", "erase", "YXYYX"),
        ("allay", "llama", "YGYYX"),
        ("mamma", "maxim", "GGYXX"),
    ],
)
def test_letters_that_come_twice_are_marked_by_the_official_rules(guess: str, answer: str, marks: str) -> None:
    assert feedback_of(guess, answer) == feedback_by_matching(guess, answer) == marks


@pytest.mark.slow
def test_marks_equal_those_of_an_oracle_on_10_000_random_pairs() -> None:
    rng = random.Random(0)
    words = sorted(word_list().allowed)
    dense = ["".join(rng.choices("abcd", k=5)) for _ in range(300)]  # where letters come twice, and three times
    pairs = [(rng.choice(words), rng.choice(words)) for _ in range(7_000)]
    pairs += [(rng.choice(dense), rng.choice(dense)) for _ in range(3_000)]
    assert [pair for pair in pairs if feedback_of(*pair) != feedback_by_matching(*pair)] == []


def test_the_words_are_the_same_on_every_machine() -> None:
    words = word_list()
    assert (len(words.answers), len(words.allowed)) == (4044, 12738)
    assert words.answers[:5] == ("about", "there", "going", "would", "where")
    text = "\n".join([*words.answers, *sorted(words.allowed)])
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "2eb1c96f990900e7f5b1911e7972eb295b32d2501eb138160911df5068b7e678"
    assert [sum(map(is_held_out, words.answers[:num])) for num in (200, 1000, 2000, 4044)] == [32, 219, 411, 805]


@pytest.mark.slow
def test_the_solver_wins_more_than_95_of_100_held_out_games_and_never_contradicts_the_marks() -> None:
    answers = word_list().answers[:2000]
    solver = Solver(answers)
    held_out = [word for word in answers if is_held_out(word)][::4]
    games = [Game(word, word_list().allowed) for word in held_out]
    for game in games:
        while not game.is_over:
            game.play(solver.guess(game.tries))
        assert len(set(game.words)) == len(game.tries)
        assert all(fits(word, game.tries[:place]) for place, word in enumerate(game.words))
    assert len(games) > 100 and sum(game.is_won for game in games) / len(games) > 0.95


def test_the_solver_takes_the_word_that_splits_the_others() -> None:
    assert most_telling(["bound", "found", "hound", "fetch"]) == "fetch"
    assert most_telling(["pound", "found"]) == "pound"
