"""The matching game as an environment: what the policy reads, what counts, and what does not pay."""

import asyncio
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from slimrl.environments.find import load_taskset
from slimrl.errors import RolloutError, UserError
from slimrl.types import Message, Rollout, Task, Turn
from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import Propose
from slimrl_envs.matching_game.rules.game_files import deal_of, lines
from slimrl_envs.matching_game.rules.generator import deals_of_seed, split_of
from slimrl_envs.matching_game.rules.protocol import LAST_MESSAGE, format_act, proposal_lines

SMALL = {"n": 3, "num_train": 40, "num_test": 20, "max_turns": 12}
OWN_VIEW = 0.79  # what looks best to one alone, between equals at random; see rules/test_players.py
Policy = Callable[[Deal, list[Message]], str]


def made(**args: Any) -> MatchingTaskset:
    taskset = load_taskset("matching-game", SMALL | args)
    assert isinstance(taskset, MatchingTaskset)
    return taskset


def deal_in(task: Task) -> Deal:
    return deal_of(task.data["game_state"], task.id)


def played(taskset: MatchingTaskset, task: Task, policy: Policy) -> tuple[list[Message], Turn]:
    """The conversation, and its end."""

    async def conversation() -> tuple[list[Message], Turn]:
        episode, deal = taskset.environment(task), deal_in(task)
        messages = await episode.start()
        while True:
            reply = policy(deal, messages)
            messages.append({"role": "assistant", "content": reply})
            turn = await episode.step(reply)
            if turn.done:
                await episode.close()
                return messages, turn
            messages += turn.messages

    return asyncio.run(conversation())


def replies(*texts: str) -> Policy:
    """These in turn, and then the last one for ever."""
    left = list(texts)
    return lambda deal, messages: left.pop(0) if len(left) > 1 else left[0]


def again(conversation: list[Message]) -> Policy:
    return replies(*(message["content"] for message in conversation if message["role"] == "assistant"))


def rollout_of(messages: list[Message], turn: Turn) -> Rollout:
    metrics = {**turn.metrics, "unfinished": 0.0, "context_full": 0.0}
    turns = sum(message["role"] == "assistant" for message in messages)
    masks = (False, True) * turns
    floats = (0.0,) * len(masks)
    return Rollout(
        "t", (0,) * len(masks), masks, floats, (0,) * len(masks), turn.reward, (turn.reward,) * turns, metrics=metrics
    )


def test_the_policy_reads_the_rules_and_its_own_table_and_what_the_partner_said_first():
    for role in (1, 2):
        taskset = made(role=role)
        task = taskset.tasks("test")[0]
        system, user = asyncio.run(taskset.environment(task).start())
        table, _, said = user["content"].partition("\n\n")
        assert table == deal_in(task).table_text(role - 1) and said.startswith("[message] ") == (role == 2)
        assert system["role"] == "system" and "[propose]" in system["content"]
        assert len(system["content"]) + len(user["content"]) < 1200  # a small model reads it


def test_the_games_are_those_that_are_written_to_files():
    tables = [deal.table for deal in islice(deals_of_seed(3, 7), 200)]
    taskset = made(seed=7)
    train, test = (
        [tables.index(deal_in(task).table) for task in taskset.tasks(split)[:8]] for split in ("train", "test")
    )
    assert train == sorted(train) and test == sorted(test)
    assert sorted([*train, *test])[:8] == list(range(8))
    other = made(seed=1)
    assert other.tasks("train") != taskset.tasks("train")
    assert all(split_of(deal_in(task)) == "test" for task in other.tasks("test"))


@pytest.mark.slow
@pytest.mark.parametrize(("role", "thoughts"), [(1, True), pytest.param(2, False, marks=pytest.mark.slow)])
def test_demonstrations_end_well_and_show_rejections_and_last_messages(role: int, thoughts: bool):
    args = {"role": role, "thoughts": thoughts, "num_train": 80}
    taskset = made(**args)
    rewards, recovered, last = [], 0, 0
    for task in taskset.tasks("train"):
        conversation = taskset.scripts["expert"](task, 0)
        replies = [message["content"] for message in conversation if message["role"] == "assistant"]
        assert all(("<think>" in reply) == thoughts for reply in replies)
        (max_turns,) = re.findall(r"after (\d+) messages", conversation[0]["content"])
        assert 8 <= int(max_turns) <= 12
        same, turn = played(made(**args, max_turns=int(max_turns)), task, again(conversation))
        assert same == conversation  # who plays the same gets the same
        assert turn.done and turn.metrics["errors"] == 0.0
        rewards.append(turn.reward)
        recovered += turn.metrics["proposals"] > 1
        last += LAST_MESSAGE in conversation[-2]["content"] and "[propose]" in replies[-1]
    assert fmean(rewards) > 0.75 and recovered >= 8 and last >= 16


def test_where_there_is_time_for_one_proposal_it_is_shown_after_few_and_after_many_questions():
    taskset = made(max_turns=8)
    games = [taskset.scripts["expert"](task, 0) for task in taskset.tasks("train")]
    replies = [[message["content"] for message in game if message["role"] == "assistant"] for game in games]
    asked = [next(n for n, reply in enumerate(each) if "[propose]" in reply) for each in replies]
    assert set(asked) == {1, 2, 3}


BEGIN = "Begin with a tag: [message], [propose], [accept] or [reject]."
LACKS = (
    "Your proposal lacks Electra, GloVe (reviewers not used yet: Daniel, Sofia). Write a line `Paper: Reviewer` for "
    "each of the 3 papers."
)
QUIET = {"agreed": 0.0, "score": 0.0, "optimum": 0.0, "valid_proposals": 0.0}


@pytest.mark.parametrize(
    ("args", "reply", "told", "metrics", "kind"),
    [
        ({"max_errors": 2}, "hello", [BEGIN, BEGIN], {"errors": 3.0, "messages": 0.0}, "too many errors"),
        ({"max_errors": 1}, "[propose] Proposal:\nBLEU: Ava", [LACKS], {"proposals": 2.0}, "too many errors"),
        ({"max_turns": 6}, "[message] Hello.", [None, LAST_MESSAGE], {"messages": 3.0}, "never proposed"),
        ({"max_turns": 6, "last_turn_rule": False}, "[message] Hello.", [None, None], {"questions": 0.0}, ""),
        (
            {"max_turns": 4},
            "<think>[accept] [reject]</think>\n[message] What does Ava have for BLEU?",
            [LAST_MESSAGE],
            {"messages": 2.0, "questions": 2.0, "distinct_questions": 1.0},
            "never proposed",
        ),
    ],
)
def test_a_game_without_an_agreement_earns_nothing_and_says_why(
    args: dict[str, Any], reply: str, told: list[str | None], metrics: dict[str, float], kind: str
):
    """Errors are told and the turn stays; thoughts are not heard; the last turn is announced if it shall be."""
    taskset = made(**args)
    task = taskset.tasks("train")[0]
    messages, turn = played(taskset, task, replies(reply))
    read = [message["content"] for message in messages if message["role"] == "user"][1 : 1 + len(told)]
    assert all(text.endswith(end) if end else LAST_MESSAGE not in text for text, end in zip(read, told, strict=False))
    assert turn.done and turn.reward == 0.0 and turn.metrics == {**turn.metrics, **QUIET, **metrics}
    assert taskset.failure_kind(rollout_of(messages, turn)).startswith(kind)
    ending, deal = turn.messages[0]["content"], deal_in(task)
    best = f"The best assignment, worth {deal.best}:\n{proposal_lines(deal.best_assignment, deal)}"
    assert ending.endswith(f"The game is over without an agreement: 0 of {deal.best}.\n\n{best}")


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
def test_what_went_wrong_is_told_from_the_metrics(metrics: dict[str, float], kind: str):
    names = ("errors", "unfinished", "agreed", "score", "proposals", "valid_proposals")
    rollout = Rollout("t", (), (), (), (), 0.0, metrics={**dict.fromkeys(names, 0.0), "own_view": 0.7, **metrics})
    assert made().failure_kind(rollout) == kind


@pytest.mark.parametrize("role", [1, 2])
def test_with_notes_each_turn_tells_the_numbers_that_the_policy_has(role: int):
    plain, noted = (made(role=role, notes=notes) for notes in (False, True))
    task = noted.tasks("train")[0]
    conversations = [
        [m["content"] for m in taskset.scripts["expert"](task, 0) if m["role"] == "user"] for taskset in (plain, noted)
    ]
    assert len(conversations[0]) == len(conversations[1])
    for told, told_with_notes in zip(*conversations, strict=True):
        parts = told_with_notes.split("\n\n")
        notes = [part for part in parts if part.startswith(("You know: ", "Low: "))]
        assert len(notes) == 1 and "\n\n".join(part for part in parts if part not in notes) == told


def test_two_sides_of_one_game_read_each_others_words_and_share_the_reward():
    taskset = made(partner="self")
    assert list(taskset.roles) == ["player 1", "player 2"]
    task = taskset.tasks("train")[0]
    deal = deal_in(task)
    proposal = format_act(Propose(deal.best_assignment), deal)

    async def one_side(episode: Any, *texts: str) -> tuple[list[str], Turn]:
        read = [message["content"] for message in await episode.start()][1:]
        for text in texts:
            turn = await episode.step(text)
            read += [message["content"] for message in turn.messages]
        await episode.close()
        return read, turn

    async def both() -> Any:
        first, second = taskset.self_play(task)
        return await asyncio.gather(
            one_side(first, "[message] Hello?", "[propose] nonsense", proposal),
            one_side(second, "[message] Hello yourself.", "[message] Too early", "[accept]"),
        )

    (read_1, turn_1), (read_2, turn_2) = asyncio.run(both())
    assert read_1[0] == deal.table_text(0) and read_1[1] == "[message] Hello yourself."
    assert read_2[0] == f"{deal.table_text(1)}\n\n[message] Hello?"
    assert read_2[1].startswith(proposal) and "[accept] or [reject]" in read_2[1]
    assert "waits for an answer" in read_2[2]
    assert turn_1.done and turn_2.done and turn_1.reward == turn_2.reward == 1.0
    ending = f"The game is over: you agreed on {deal.best} of {deal.best}."
    assert (read_1[-1], read_2[-1]) == (f"[accept]\n\n{ending}", ending)  # the last word of the other one, if it had it
    assert (turn_1.metrics["errors"], turn_2.metrics["errors"]) == (1.0, 1.0)
    assert (turn_1.metrics["questions"], turn_2.metrics["questions"]) == (1.0, 0.0)


def test_a_side_that_comes_to_no_turn_is_dropped():
    taskset = made(partner="self", max_errors=0)

    async def first_side(episode: Any) -> Turn:
        await episode.start()
        return await episode.step("nonsense")

    async def both() -> Any:
        first, second = taskset.self_play(taskset.tasks("train")[0])
        return await asyncio.gather(first_side(first), second.start(), return_exceptions=True)

    turn, dropped = asyncio.run(both())
    assert turn.done and turn.reward == 0.0
    assert isinstance(dropped, RolloutError) and dropped.reason == "partner_left"


# Files of games, and what cannot be meant.


def test_games_can_come_from_a_file(tmp_path: Path):
    made_up = made()
    path = tmp_path / "games.jsonl"
    path.write_bytes(b"".join(lines(map(deal_in, (*made_up.tasks("train"), *made_up.tasks("test"))))))
    own = made(games=str(path))
    for split in ("train", "test"):
        assert [deal_in(task).table for task in own.tasks(split)] == [
            deal_in(task).table for task in made_up.tasks(split)
        ]
    path.write_bytes(b"".join(lines(map(deal_in, made_up.tasks("train")))))
    with pytest.raises(UserError, match=r"games\.jsonl is of the split `test`. Make some with .*--split test"):
        made(games=str(path)).tasks("test")
    with pytest.raises(UserError, match=r"games\.jsonl"):
        made(games=str(tmp_path / "no_games.jsonl"))
    path.write_text("{}\n")
    with pytest.raises(UserError, match=r"games\.jsonl.*1"):
        made(games=str(path))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"partner": "scripte"}, "no `partner` 'scripte'. Did you mean `scripted`"),
        ({"role": 3}, "`role` is 1 for who begins or 2, not 3"),
        ({"n": 1}, "`n` must be 2 to 10, not 1"),
        ({"n": 11}, "`n` must be 2 to 10, not 11"),
        ({"max_turns": 1}, "`max_turns` must be 2 or more, not 1"),
        ({"max_errors": -1}, "`max_errors` must be 0 or more, not -1"),
        ({"llm": {"model": "x"}}, '`llm` is for `partner = "llm"`'),
        ({"partner": "llm", "llm": {"modle": "x"}}, "no setting `modle`. Did you mean `model`"),
    ],
)
def test_args_that_cannot_be_meant_are_refused(args: dict[str, Any], message: str):
    with pytest.raises(UserError, match=re.escape(message)):
        load_taskset("matching-game", SMALL | args)
