"""The matching game as an environment: what the policy reads, what counts, and what does not pay."""

import asyncio
import re
from itertools import chain, repeat
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from packages.envs.tests.episodes import opening_of, play, replies_of
from slimrl.environments.find import load_taskset
from slimrl.errors import RolloutError, UserError
from slimrl.types import Rollout, Task, Turn
from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import Propose
from slimrl_envs.matching_game.rules.game_files import deal_of, lines
from slimrl_envs.matching_game.rules.protocol import LAST_MESSAGE, format_act, proposal_lines

SMALL = {"n": 3, "num_train": 40, "num_test": 20, "max_turns": 12}


def made(**args: Any) -> MatchingTaskset:
    taskset = load_taskset("matching-game", SMALL | args)
    assert isinstance(taskset, MatchingTaskset)
    return taskset


def deal_in(task: Task) -> Deal:
    return deal_of(task.data["game_state"], task.id)


def played(taskset: MatchingTaskset, task: Task, *replies: str) -> tuple[list[str], Turn]:
    """The texts that the policy reads after the rules, and the end of the game. The last reply is repeated for ever."""
    opening, turns = asyncio.run(play(taskset.environment(task), chain(replies, repeat(replies[-1]))))
    return [m["content"] for m in (opening[-1], *(m for turn in turns for m in turn.messages))], turns[-1]


def test_the_policy_reads_the_rules_and_its_own_table_and_the_first_words_of_the_partner() -> None:
    for role in (1, 2):
        taskset = made(role=role)
        task = taskset.tasks("test")[0]
        system, user = opening_of(taskset, task)
        table, _, said = user["content"].partition("\n\n")
        assert table == deal_in(task).table_text(role - 1) and said.startswith("[message] ") == (role == 2)
        assert system["role"] == "system" and "[propose]" in system["content"]
        assert len(system["content"]) + len(user["content"]) < 1200  # a small model reads it


@pytest.mark.slow
@pytest.mark.parametrize(("role", "thoughts"), [(1, True), (2, False)])
def test_demonstrations_end_well_and_show_rejections_and_last_messages(role: int, thoughts: bool) -> None:
    args = {"role": role, "thoughts": thoughts, "num_train": 80}
    taskset = made(**args)
    rewards, recovered, last = [], 0, 0
    for task in taskset.tasks("train"):
        conversation = taskset.scripts["expert"](task, 0)
        replies = replies_of(conversation)
        assert all(("<think>" in reply) == thoughts for reply in replies)
        (max_turns,) = re.findall(r"after (\d+) messages", conversation[0]["content"])
        assert 8 <= int(max_turns) <= 12
        read, turn = played(made(**args, max_turns=int(max_turns)), task, *replies)
        assert read[:-1] == [
            m["content"] for m in conversation if m["role"] == "user"
        ]  # the same replies, the same game
        assert turn.done and turn.metrics["errors"] == 0.0
        rewards.append(turn.reward)
        recovered += turn.metrics["proposals"] > 1
        last += LAST_MESSAGE in conversation[-2]["content"] and "[propose]" in replies[-1]
    assert fmean(rewards) > 0.75 and recovered >= 8 and last >= 16


BEGIN = "Begin with a tag: [message], [propose], [accept] or [reject]."
LACKS = (
    "Your proposal lacks Electra, GloVe (reviewers not used yet: Daniel, Sofia). Write a line `Paper: Reviewer` for "
    "each of the 3 papers."
)
QUIET = {"agreed": 0.0, "score": 0.0, "optimum": 0.0, "valid_proposals": 0.0}


@pytest.mark.parametrize(
    ("args", "reply", "told", "metrics"),
    [
        ({"max_errors": 2}, "hello", [BEGIN, BEGIN], {"errors": 3.0, "messages": 0.0}),
        ({"max_errors": 1}, "[propose] Proposal:\nBLEU: Ava", [LACKS], {"proposals": 2.0}),
        ({"max_turns": 6}, "[message] Hello.", [None, LAST_MESSAGE], {"messages": 3.0}),
        ({"max_turns": 6, "last_turn_rule": False}, "[message] Hello.", [None, None], {"questions": 0.0}),
        (
            {"max_turns": 4},
            "<think>[accept] [reject]</think>\n[message] What does Ava have for BLEU?",
            [LAST_MESSAGE],
            {"messages": 2.0, "questions": 2.0, "distinct_questions": 1.0},
        ),
    ],
)
def test_a_game_without_an_agreement_earns_nothing_and_says_why(
    args: dict[str, Any], reply: str, told: list[str | None], metrics: dict[str, float]
) -> None:
    """Errors are told and the turn stays; thoughts are not heard; the last turn is announced if it shall be."""
    taskset = made(**args)
    task = taskset.tasks("train")[0]
    read, turn = played(taskset, task, reply)
    for text, end in zip(read[1:], told, strict=False):
        assert text.endswith(end) if end else LAST_MESSAGE not in text
    assert turn.done and turn.reward == 0.0 and turn.metrics == {**turn.metrics, **QUIET, **metrics}
    deal = deal_in(task)
    best = f"The best assignment, worth {deal.best}:\n{proposal_lines(deal.best_assignment, deal)}"
    assert read[-1].endswith(f"The game is over without an agreement: 0 of {deal.best}.\n\n{best}")


@pytest.mark.parametrize(
    ("metrics", "kind"),
    [
        ({"errors": 9.0, "unfinished": 1.0}, "too many errors"),
        ({"unfinished": 1.0}, ""),
        ({}, "never proposed"),
        ({"proposals": 2.0}, "no valid proposal"),
        ({"proposals": 2.0, "valid_proposals": 1.0}, "proposals turned down"),
        ({"agreed": 1.0, "score": 0.6}, "agreed on less than its own view"),
        ({"agreed": 1.0, "score": 0.8}, "agreed on less than the best"),
    ],
)
def test_the_kind_of_a_failure_follows_from_the_metrics(metrics: dict[str, float], kind: str) -> None:
    names = ("errors", "unfinished", "agreed", "score", "proposals", "valid_proposals")
    rollout = Rollout("t", (), (), (), (), 0.0, metrics={**dict.fromkeys(names, 0.0), "own_view": 0.7, **metrics})
    assert made().failure_kind(rollout) == kind


@pytest.mark.parametrize("role", [1, 2])
def test_with_notes_each_turn_tells_the_numbers_that_the_policy_has(role: int) -> None:
    plain, noted = (made(role=role, notes=notes) for notes in (False, True))
    task = noted.tasks("train")[0]
    conversations = [
        [m["content"] for m in taskset.scripts["expert"](task, 0) if m["role"] == "user"] for taskset in (plain, noted)
    ]
    for told, told_with_notes in zip(*conversations, strict=True):
        parts = told_with_notes.split("\n\n")
        notes = [part for part in parts if part.startswith(("You know: ", "Low: "))]
        assert len(notes) == 1 and "\n\n".join(part for part in parts if part not in notes) == told


def self_played(taskset: MatchingTaskset, *sides: tuple[str, ...]) -> Any:
    """The opening and the turns of both sides of one game, or an error of a side."""

    async def both() -> Any:
        episodes = taskset.self_play(taskset.tasks("train")[0])
        return await asyncio.gather(*map(play, episodes, sides), return_exceptions=True)

    return asyncio.run(both())


def test_two_sides_of_one_game_read_each_others_words_and_share_the_reward() -> None:
    taskset = made(partner="self")
    assert list(taskset.roles) == ["player 1", "player 2"]
    deal = deal_in(taskset.tasks("train")[0])
    proposal = format_act(Propose(deal.best_assignment), deal)
    found = self_played(
        taskset,
        ("[message] Hello?", "[propose] nonsense", proposal),
        ("[message] Hello yourself.", "[message] Too early", "[accept]"),
    )
    read_1, read_2 = (
        [m["content"] for m in (opening[1], *(m for turn in turns for m in turn.messages))] for opening, turns in found
    )
    assert read_1[0] == deal.table_text(0) and read_1[1] == "[message] Hello yourself."
    assert read_2[0] == f"{deal.table_text(1)}\n\n[message] Hello?"
    assert read_2[1].startswith(proposal) and "[accept] or [reject]" in read_2[1]
    assert "waits for an answer" in read_2[2]
    ending = f"The game is over: you agreed on {deal.best} of {deal.best}."
    assert (read_1[-1], read_2[-1]) == (f"[accept]\n\n{ending}", ending)  # the last word of the other one, if it had it
    ends = [turns[-1] for _, turns in found]
    assert [(turn.done, turn.reward, turn.metrics["errors"]) for turn in ends] == [(True, 1.0, 1.0)] * 2
    assert [turn.metrics["questions"] for turn in ends] == [1.0, 0.0]


def test_a_side_that_comes_to_no_turn_is_dropped() -> None:
    (_, turns), dropped = self_played(made(partner="self", max_errors=0), ("nonsense",), ())
    assert turns[-1].done and turns[-1].reward == 0.0
    assert isinstance(dropped, RolloutError) and dropped.reason == "partner_left"


def test_games_can_come_from_a_file(tmp_path: Path) -> None:
    made_up, path = made(), tmp_path / "games.jsonl"
    path.write_bytes(b"".join(lines(map(deal_in, (*made_up.tasks("train"), *made_up.tasks("test"))))))
    own = made(games=str(path))
    for split in ("train", "test"):
        tables = ([deal_in(task).table for task in taskset.tasks(split)] for taskset in (own, made_up))
        assert next(tables) == next(tables)
    path.write_bytes(b"".join(lines(map(deal_in, made_up.tasks("train")))))
    with pytest.raises(UserError, match=r"games\.jsonl is of the split `test`. Make some with .*--split test"):
        made(games=str(path)).tasks("test")
    with pytest.raises(UserError, match=r"no_games\.jsonl"):
        made(games=str(tmp_path / "no_games.jsonl"))
