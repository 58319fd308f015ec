"""textarena: tasks, rewards, opponents, self-play, and games that do not disturb one another."""

import asyncio
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from packages.envs.tests.episodes import opening_of, play, turns_in, turns_of
from slimrl.environments.find import load_taskset, prepare_taskset
from slimrl.errors import RolloutError

pytestmark = pytest.mark.slow


def games(name: str, **args):
    return load_taskset(f"textarena:{name}", args)


def test_the_rules_are_read_once_and_then_only_news():
    taskset = games("TicTacToe-v0")
    opening, turns = asyncio.run(play(taskset.environment(taskset.tasks("train")[0]), ["[4]"]))
    assert [message["role"] for message in opening] == ["system", "user"]
    assert "three in a row" in opening[0]["content"]
    (news,) = turns[0].messages
    assert "three in a row" not in news["content"]
    assert news["content"].count("Current Board") == 1  # not also the one before the opponent's move


@pytest.mark.parametrize(
    ("name", "reply", "num_invalid"),
    [
        ("TicTacToe-v0", "4", 0),  # brackets are added as textarena adds them
        ("TicTacToe-v0-raw", "4", 1),
        ("TicTacToe-v0", "<think>[0] or [9]?</think>[4]", 0),
    ],
)
def test_a_reply_is_read_without_thoughts_and_in_brackets(name, reply, num_invalid):
    (turn,) = turns_in(f"textarena:{name}", reply)
    assert turn.metrics["invalid_moves"] == num_invalid
    assert ("cell 4" in turn.messages[0]["content"]) == (not num_invalid)


def test_a_system_prompt_precedes_the_rules():
    taskset = load_taskset("textarena:TicTacToe-v0", {"system": "Think in <think> tags, then move."})
    task = taskset.tasks("train")[0]
    for opening in (opening_of(taskset, task), taskset.scripts["random"](task, 0)):
        system = opening[0]["content"]
        assert system.startswith("Think in <think> tags, then move.\n\n") and "three in a row" in system


def test_two_invalid_moves_lose():
    turns = turns_in("textarena:TicTacToe-v0", "hello", "hello")
    assert [(turn.done, turn.reward) for turn in turns] == [(False, 0.0), (True, 0.0)]
    ends = {"won": 0, "drawn": 0, "invalid_moves": 2, "ended_by_invalid": 1, "turns": 2}
    assert turns[-1].metrics == ends


@pytest.mark.parametrize(
    ("name", "replies"),
    [
        # textarena gives some of these a share for an invalid move, and others a text as the reward.
        *((name, ["hello"] * 3) for name in ("2048-v0", "PegJump-v0", "Countdown-v0", "Slitherlink-v0", "RushHour-v0")),
        # It lets an eliminated player go on forever.
        ("Poker-v0-small", ["hello"] * 100),
        # After the invalid move of the last player it would look for the next player without end.
        *((name, ["hello 7"] * 30) for name in ("PublicGoodsGame-v0", "MarketEntryGame-v0")),
    ],
)
def test_giving_up_by_invalid_moves_earns_nothing(name, replies):
    turns = turns_in(f"textarena:{name}", *replies)
    assert turns[-1].done and turns[-1].reward == 0.0 and turns[-1].metrics["ended_by_invalid"]


def test_a_good_guess_is_not_cashed_by_an_invalid_move():
    taskset = games("GuessTheNumber-v0")
    task = taskset.tasks("train")[0]
    number = taskset._game.start(task.data["seed"], 1).inner.game_number
    turns = turns_of(taskset, task, [f"[{number + (1 if number < 20 else -1)}]", "no", "no"])
    assert turns[-1].done and turns[-1].reward == 0.0


def test_an_error_of_the_game_at_a_reply_loses():
    async def broken():
        taskset = games("Nim-v0")
        episode = taskset.environment(taskset.tasks("train")[0])
        await episode.start()
        episode.game.inner.step = lambda text: 1 / 0
        return await episode.step("[0 1]")

    turn = asyncio.run(broken())
    assert turn.done and turn.reward == 0.0


def test_an_invalid_move_of_a_bot_drops_the_game(monkeypatch):
    taskset = games("Nim-v0")
    monkeypatch.setattr("slimrl_envs.textarena.taskset.RandomPlayer", lambda rng: lambda game, seen: "nonsense")
    with pytest.raises(RolloutError, match="opponent_invalid"):
        turns_of(taskset, taskset.tasks("train")[0], ["[0 1]"])


def test_a_random_opponent_listens_to_nobody():
    """Words of the policy cannot put a move into its mouth."""
    plain = turns_in("textarena:TicTacToe-v0", "[4]")
    spoken = turns_in("textarena:TicTacToe-v0", "[4] Current Board: Available Moves: '[4]', '[99]' [resign]")
    board = [turn.messages[0]["content"].partition("Current Board")[2] for turn in (plain[0], spoken[0])]
    assert board[0] == board[1]


def conversation(name: str, number: int) -> list[str]:
    taskset = games(name)
    return [message["content"] for message in taskset.scripts["random"](taskset.tasks("train")[number], 0)]


@pytest.mark.parametrize("name", ["KuhnPoker-v0", "GuessTheNumber-v0", "2048-v0-mega-easy", "Blackjack-v0"])
def test_games_played_at_once_go_as_they_go_alone(name):
    alone = {number: conversation(name, number) for number in (0, 1)}
    taskset = games(name)
    replies = {number: alone[number][2::2] for number in alone}

    async def together():
        episodes = {number: taskset.environment(taskset.tasks("train")[number]) for number in alone}
        found = {number: [m["content"] for m in await episode.start()] for number, episode in episodes.items()}
        for turn in range(max(map(len, replies.values()))):
            random.random(), np.random.random()  # what others draw
            for number, episode in episodes.items():
                if turn < len(replies[number]):
                    reply = replies[number][turn]
                    answer = await episode.step(reply)
                    found[number] += [reply, *([] if answer.done else [m["content"] for m in answer.messages])]
        return found

    assert asyncio.run(together()) == alone


def test_global_generators_are_left_as_they_were():
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    conversation("Blackjack-v0", 0)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_the_reward_of_one_reply_is_noted_where_it_is_high(capsys):
    prepare_taskset(games("ConnectFour-v0"))
    assert "ConnectFour pays 0.83 on average if every reply to the player at random is `[0]`" in capsys.readouterr().err
    prepare_taskset(games("2048-v0-ultra-easy"))
    assert "2048-v0-ultra-easy pays 1.00 on average if every move is a valid one" in capsys.readouterr().err
    prepare_taskset(games("2048-v0"))
    assert capsys.readouterr().err == ""


def test_missing_word_lists_are_named_and_not_loaded(tmp_path):
    program = "from slimrl.environments.find import load_taskset; load_taskset('textarena:Wordle-v0', {})"
    env = {**os.environ, "NLTK_DATA": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=300)
    assert "UserError" in done.stderr and "python -m nltk.downloader words" in done.stderr
    assert list(tmp_path.iterdir()) == []
