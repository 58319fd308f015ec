"""Answers that are made up to try a judge on: their labels are what they should be."""

import pytest

from slimrl.judges.judge import MatchJudge
from slimrl_search.judge.calibration import calibrate
from slimrl_search.retrieval.encyclopedia import Encyclopedia
from slimrl_search.wiki_search.judge_examples import RIGHT, WRONG, kind_of, make_labelled_answers

pytestmark = pytest.mark.slow


def test_made_up_answers_are_the_same_every_time_and_half_of_them_right():
    answers = list(make_labelled_answers(76))
    assert answers == list(make_labelled_answers(76)) and answers[:10] == list(make_labelled_answers(10))
    assert [one.label for one in answers] == [True, False] * 38
    assert {one.kind for one in answers} == {*RIGHT, *WRONG}
    assert answers != list(make_labelled_answers(76, seed=1))
    # All questions of this seed that ask what a company makes have the same answer, if there are only 300.
    assert len(list(make_labelled_answers(500, seed=3))) == 500


def test_every_question_of_the_encyclopedia_has_a_sentence_for_its_answer():
    questions = Encyclopedia(1000, 0).questions()
    assert len({kind_of(next(questions).question)[0] for _ in range(1000)}) >= 15


def test_comparing_words_rewards_no_made_up_wrong_answer():
    """A policy that reads the pages could otherwise learn to answer like that."""
    result = calibrate("match", MatchJudge(), list(make_labelled_answers(1000)), 8, lambda: None)
    assert result.mistakes["false_yes"] == []
    assert result.confusion.agreement.mean > 0.9
