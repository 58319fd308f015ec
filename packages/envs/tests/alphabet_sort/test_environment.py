"""alphabet-sort: its lists and splits, its scorer by worked examples, its turns, and what does not pay."""

from itertools import combinations, permutations, product
from statistics import fmean

import pytest

from packages.envs.tests.episodes import opening_of, replies_of, turns_of
from slimrl.errors import UserError
from slimrl.types import Rollout, Task, Turn
from slimrl_envs.alphabet_sort.environment import AlphabetSort
from slimrl_envs.alphabet_sort.names import FIRST_NAMES, LAST_NAMES, is_held_out
from slimrl_envs.alphabet_sort.scoring import NEW_TAG, format_answer, score_answer

SMALL = {"num_train": 200, "num_test": 100}
TASKSET = AlphabetSort(**SMALL)
POWERS = (1, 2, 4, 8)

# A list of five by first name, of which Ben Crane and Dora Webb are new.
TRUTH = ["Anna Reed", "Ben Crane (new)", "Cora Bell", "Dora Webb (new)", "Emil Hart"]
A, B, C, D, E = TRUTH


def similarity(lines, truth=TRUTH) -> float:
    return score_answer(format_answer(lines), truth).similarity


def played(task: Task, replies, taskset=TASKSET) -> list[Turn]:
    return turns_of(taskset, task, replies)


def names_of(tasks, word: int) -> set[str]:
    return {name.split()[word] for task in tasks for turn in task.data["turns"] for name in turn["names"]}


TASKS = TASKSET.tasks("train")
LONG = next(task for task in TASKS if len(task.data["turns"]) == 3)


# What is similar to what. Of 5 true lines and n given ones, m are in order: m / max(5, n).


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([A, B, C, D, E], 1.0),
        ([E, A, "Finn Moss", C, B, D], 3 / 6),
        ([E, D, C, B, A], 1 / 5),  # backwards: one line is always in order
        ([A, B, C, D, E, "Finn Moss"], 5 / 6),  # somebody who is not on the list
        ([A, B, "Cora Ball", D, E], 4 / 5),  # a name that is spelt wrongly is another name
        ([A, B, C, "Dora Webb", E], 4 / 5),  # a mark left out
        ([A + NEW_TAG, B, C, D, E], 4 / 5),  # a mark too many
        ([f"{name.removesuffix(NEW_TAG)}{NEW_TAG}" for name in TRUTH], 2 / 5),  # all marked: the two new ones are right
        ([name.removesuffix(NEW_TAG) for name in TRUTH], 3 / 5),  # none marked: the three others are
        ([name.lower() for name in TRUTH], 0.0),
        ([f"{place}. {name}" for place, name in enumerate(TRUTH, 1)], 0.0),
        ([f"- {name}" for name in TRUTH], 0.0),
        ([", ".join(TRUTH)], 0.0),
        ([f"  {name}\t" for name in TRUTH], 1.0),
        ([name.replace(" ", "   ") for name in TRUTH], 1.0),
        (["", A, "", "", B, C, D, E, ""], 1.0),
        (["", " "], 0.0),
        (TRUTH * 2, 5 / 10),  # all names twice earn far less than once
        ([A, C, B, D, C, E], 4 / 6),  # a repeated line costs wherever it stands
        ([A, A + NEW_TAG, B, C, D, E], 5 / 6),  # and so does a name with its mark and without it
    ],
)
def test_similarity_by_hand(lines, expected):
    assert similarity(lines) == pytest.approx(expected)


def test_the_lines_in_order_are_counted_as_by_trying_all():
    for lines in (list(order) for num in range(6) for order in permutations(TRUTH, num)):
        picked = (choice for num in range(6) for choice in combinations(lines, num))
        assert similarity(lines) == max(len(choice) for choice in picked if sorted(choice) == list(choice)) / 5


# Which words are the answer.

RIGHT, WRONG = format_answer(TRUTH), format_answer(TRUTH[::-1])


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (RIGHT, 1.0),
        (RIGHT.replace("\n", "\r\n"), 1.0),
        ("<sorted>" + "\n".join(TRUTH) + "</sorted>", 1.0),
        (f"Here it is:\n{RIGHT}\nAnything else?", 1.0),
        (RIGHT + WRONG, 1.0),  # the first of several answers counts
        (WRONG + RIGHT, 1 / 5),
        (format_answer([*TRUTH[::-1], RIGHT]), 1 / 11),  # nor does one inside another
        (f"<think>perhaps {WRONG}?</think>{RIGHT}", 1.0),
        (f"<think>{RIGHT}", 0.0),
        *((form.format("\n".join(TRUTH)), 0.0) for form in ("{}", "<sorted>{}", "{}</sorted>", "</sorted>{}<sorted>")),
        (RIGHT.upper(), 0.0),
        ("<sorted>\n" * 50_000, 0.0),
        ("<sorted>\n" * 50_000 + "</sorted>", 0.0),
        (format_answer(TRUTH * 20_001), 5 / 100_005),
    ],
)
def test_the_first_answer_in_tags_outside_of_thoughts_is_judged_at_once(reply, expected):
    assert score_answer(reply, TRUTH).similarity == pytest.approx(expected)


# What does not pay.


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("num", [2, 3])
def test_who_does_not_know_the_order_does_best_to_name_each_once(num, power):
    """Over all orders, with all answers up to two lines longer than the list: no hedge beats a guess."""
    names = TRUTH[:num]
    orders = list(permutations(names))

    def expected(lines) -> float:
        return fmean(similarity(lines, order) ** power for order in orders)

    answers = [lines for length in range(num + 3) for lines in product(names, repeat=length)]
    assert max(answers, key=expected) in orders
    assert max(map(expected, answers)) == expected(names)
    # A name whose place is not known is worth a guess: three of four lines are known.
    known, unknown = [A, C, E], "Finn Moss"
    orders = [[*known[:place], unknown, *known[place:]] for place in range(4)]
    assert expected(known) == pytest.approx(0.75**power)
    assert all(expected(guess) == pytest.approx(1 / 4 + 3 / 4 * expected(known)) for guess in orders)


# The turns.


def test_later_requests_begin_with_the_list_so_far_if_that_is_wanted():
    taskset = AlphabetSort(**SMALL, restate=True, num_examples=1)
    asked, plain = (
        [message["content"] for message in some.scripts["expert"](LONG, 0) if message["role"] == "user"]
        for some in (taskset, TASKSET)
    )
    answers = [
        answer.replace(NEW_TAG, "").split("\n")[1:-1] for answer in replies_of(TASKSET.scripts["expert"](LONG, 0))
    ]
    assert asked[0] == plain[0]
    expected = [
        "\n".join(["The list so far:", *before, text]) for before, text in zip(answers, plain[1:], strict=False)
    ]
    assert asked[1:] == expected
    assert [turn.messages[0]["content"] for turn in played(LONG, ["?"] * 3, taskset)[:-1]] == asked[1:]
    opening = opening_of(taskset, LONG)
    assert sum("The list so far:" in message["content"] for message in opening) == 2  # in the one example, of 3 turns


def test_examples_stand_before_the_task_and_nowhere_else():
    shown = AlphabetSort(**SMALL, num_examples=3, max_turns=2)
    openings = [opening_of(shown, task) for task in shown.tasks("test")[:20]]
    system, *examples, question = openings[0]
    assert all(opening[:-1] == [system, *examples] for opening in openings)  # the same ones, so computed once
    assert [message["role"] for message in examples] == ["user", "assistant"] * (len(examples) // 2)
    words = {word for message in examples for word in message["content"].split()}
    assert words & {*FIRST_NAMES} and not any(is_held_out(word) for word in words & {*FIRST_NAMES, *LAST_NAMES})
    assert question["content"].startswith("Sort these names by ")
    for task in shown.tasks("test")[:20]:
        assert len(replies_of(shown.scripts["expert"](task, 0))) == len(task.data["turns"])


@pytest.mark.parametrize(
    ("num", "args", "keys"),
    [
        (6, {}, "FF LL FF L F L"),  # most turns come first, and the keys take turns
        (4, {"max_turns": 3}, "FFF LLL FF L"),
        (0, {"max_turns": 3}, ""),
    ],
)
def test_the_turns_and_keys_of_examples(num, args, keys):
    shown = AlphabetSort(**SMALL | {"max_turns": 2, "max_names": 2, "num_examples": num} | args)
    asked = [message["content"] for message in opening_of(shown, LONG)[1:-1:2]]
    begins = "".join(" " * text.startswith("Sort") + ("F" if " by FIRST name" in text else "L") for text in asked)
    assert begins.strip() == keys


def test_an_episode_by_hand():
    turns = [{"names": ["Carl Adams", "Anna Young"], "by": "first"}, {"names": ["Bert Moss"], "by": "last"}]
    replies = [
        "<sorted>\nAnna Young\nCarl Adams\n</sorted>",
        "<sorted>\nCarl Adams\nBert Moss (new)\nAnna Young\n</sorted>",
    ]
    task = Task("by hand", {"turns": turns})
    assert replies_of(TASKSET.scripts["expert"](task, 0)) == replies
    first, last = played(task, replies)
    assert (first.reward, first.done, last.reward, last.done) == (0.5, False, 0.5, True)
    wrong = played(task, replies[::-1])
    assert [turn.reward for turn in wrong] == [(1 / 3) ** 4 / 2, (1 / 3) ** 4 / 2]
    assert wrong[0].messages == first.messages  # whatever is answered
    assert first.messages[0]["content"].split("\n")[1:] == ["Bert Moss"]  # the new one, and not the list so far
    assert [turn.reward for turn in played(task, ["no tags", replies[1]])] == [0.0, 0.5]
    assert played(task, [replies[0], "I give up."])[1].metrics == dict.fromkeys(
        ("similarity", "exact", "tagged", "names", "marks"), 0.5
    )


# The tasks and their players.


@pytest.mark.parametrize(
    ("args", "num_turns", "num_names"),
    [
        ({"min_turns": 2, "max_names": 4}, {2, 3}, {1, 2, 3, 4}),
        ({}, {1, 2, 3}, {1, 2, 3, 4, 5}),
    ],
)
def test_lists_have_the_sizes_that_are_asked_for_both_keys_and_no_ties(args, num_turns, num_names):
    tasks = AlphabetSort(**SMALL, **args).tasks("train")
    assert {len(task.data["turns"]) for task in tasks} == num_turns
    assert {len(turn["names"]) for task in tasks for turn in task.data["turns"]} == num_names
    assert {tuple({turn["by"] for turn in task.data["turns"]}) for task in tasks} == {("first",), ("last",)}
    for task in tasks:
        names = [name for turn in task.data["turns"] for name in turn["names"]]
        assert all(len({name.split()[word] for name in names}) == len(names) for word in (0, 1))


def test_failures_are_told_apart():
    right = replies_of(TASKSET.scripts["expert"](LONG, 0))
    lines = right[2].split("\n")[1:-1]

    def kind(*replies: str, unfinished: float = 0.0) -> str:
        metrics = {**played(LONG, replies)[-1].metrics, "unfinished": unfinished}
        return TASKSET.failure_kind(Rollout(LONG.id, (), (), (), (), 0.5, metrics=metrics))

    assert kind(*right[:2], unfinished=1.0) == ""
    for last, expected in {
        right[2]: "",
        "\n".join(lines): "no answer in tags",
        format_answer(lines[1:]): "wrong names",
        format_answer([*lines, lines[0]]): "wrong names",
        format_answer([line.removesuffix(NEW_TAG) for line in lines]): "wrong marks",
        format_answer(lines[::-1]): "wrong order",
    }.items():
        assert kind(*right[:2], last) == expected


def test_more_lists_than_there_are_is_told(monkeypatch):
    monkeypatch.setattr("slimrl_envs.alphabet_sort.environment._names", lambda split: (["Ann", "Bea"], ["Cox", "Dee"]))
    with pytest.raises(UserError, match="found only 8 lists for `num_test` = 60; lower it"):
        AlphabetSort(max_turns=1, max_names=2, num_test=60).tasks("test")
