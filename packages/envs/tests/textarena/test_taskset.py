"""textarena: tasks, rewards, opponents, self-play, and games that do not disturb one another."""

import asyncio
import random
import statistics
from itertools import combinations

import numpy as np
import pytest

from packages.envs.tests.textarena.playing import games, play, played
from slimrl.environments.find import prepare_taskset
from slimrl.errors import RolloutError, UserError
from slimrl_envs.textarena.game import load_game
from slimrl_envs.textarena.players import answer_connect_four, play_kuhn_poker

pytestmark = pytest.mark.slow


def result_of(taskset, task, messages):
    """The last turn of an episode with the replies of a conversation."""
    replies = [message["content"] for message in messages if message["role"] == "assistant"]
    return asyncio.run(play(taskset.environment(task), replies))[1][-1]


def mean_reward(taskset, script: str, count: int = 20) -> float:
    tasks = taskset.tasks("train")[:count]
    return statistics.mean(result_of(taskset, task, taskset.scripts[script](task, 0)).reward for task in tasks)


def test_the_splits_share_no_seed():
    taskset = games("GuessTheNumber-v0", num_train=500, num_test=500)
    train, test = ({task.data["seed"] for task in taskset.tasks(split)} for split in ("train", "test"))
    assert len(train) == len(test) == 500
    assert not train & test
    assert taskset.tasks("validation") == []


def test_the_rules_are_read_once_and_then_only_news():
    taskset = games("TicTacToe-v0")
    opening, turns = asyncio.run(play(taskset.environment(taskset.tasks("train")[0]), ["[4]"]))
    assert [message["role"] for message in opening] == ["system", "user"]
    assert "three in a row" in opening[0]["content"]
    (news,) = turns[0].messages
    assert "three in a row" not in news["content"]
    assert news["content"].count("Current Board") == 1  # not also the one before the opponent's move


def test_a_reply_without_brackets_is_read_as_textarena_reads_it():
    assert played("TicTacToe-v0", "4")[0].metrics["invalid_moves"] == 0
    assert played("TicTacToe-v0-raw", "4")[0].metrics["invalid_moves"] == 1


def test_thoughts_are_no_part_of_a_move():
    (turn,) = played("TicTacToe-v0", "<think>[0] or [9]?</think>[4]")
    assert "cell 4" in turn.messages[0]["content"] and turn.metrics["invalid_moves"] == 0


def test_two_invalid_moves_lose():
    turns = played("TicTacToe-v0", "hello", "hello")
    assert [turn.done for turn in turns] == [False, True]
    assert turns[-1].reward == 0.0
    assert turns[-1].metrics == {
        "won": 0,
        "drawn": 0,
        "invalid_moves": 2,
        "ended_by_invalid": 1,
        "other_invalid": 0,
        "turns": 2,
    }


def test_a_game_without_end_is_lost_by_invalid_moves():
    """textarena itself lets an eliminated player of Poker go on forever."""
    turns = played("Poker-v0-small", *["hello"] * 100, num_players=2, max_invalid_moves=3)
    assert turns[-1].done and turns[-1].reward == 0.0


@pytest.mark.parametrize(
    "name",
    ["2048-v0", "PegJump-v0", "Countdown-v0", "Slitherlink-v0", pytest.param("RushHour-v0", marks=pytest.mark.slow)],
)
def test_giving_up_by_an_invalid_move_earns_nothing(name):
    """textarena gives some of these a share, and others a text as the reward."""
    turns = played(name, "hello", "hello", "hello")
    assert turns[-1].done and turns[-1].reward == 0.0


def test_a_good_guess_is_not_cashed_by_an_invalid_move():
    taskset = games("GuessTheNumber-v0")
    task = taskset.tasks("train")[0]
    game = taskset._game.start(task.data["seed"], 1)
    near = game.inner.game_number + (1 if game.inner.game_number < 20 else -1)
    turns = asyncio.run(play(taskset.environment(task), [f"[{near}]", "no", "no"]))[1]
    assert game.inner.game_number != near and turns[-1].done and turns[-1].reward == 0.0


def test_an_error_of_the_game_at_a_reply_loses():
    taskset = games("Nim-v0")

    async def broken() -> float:
        episode = taskset.environment(taskset.tasks("train")[0])
        await episode.start()
        episode._match.game.inner.step = lambda text: 1 / 0
        return (await episode.step("[0 1]")).reward

    assert asyncio.run(broken()) == 0.0


def test_an_invalid_move_of_a_bot_drops_the_game():
    taskset = games("Nim-v0")
    taskset._bot = lambda task, place: lambda game, seen: "nonsense"
    with pytest.raises(RolloutError, match="opponent_invalid"):
        asyncio.run(play(taskset.environment(taskset.tasks("train")[0]), ["[0 1]"]))


def test_a_random_opponent_listens_to_nobody():
    """Words of the policy cannot put a move into its mouth."""
    plain = played("TicTacToe-v0", "[4]")
    spoken = played("TicTacToe-v0", "[4] Current Board: Available Moves: '[4]', '[99]' [resign]")
    board = [turn.messages[0]["content"].partition("Current Board")[2] for turn in (plain[0], spoken[0])]
    assert board[0] == board[1]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Nim-v0", {"player": "both"}),
        ("TicTacToe-v0", {"player": "both"}),
        ("GuessTheNumber-v0", {"config": {"max_turns": 4}}),
    ],
)
def test_the_expert_is_better_than_chance(name, args):
    taskset = games(name, **args)
    assert mean_reward(taskset, "expert") > max(0.9, mean_reward(taskset, "random") + 0.1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Nim-v0", "TicTacToe-v0", "ConnectFour-v0"])
def test_a_scripted_opponent_is_harder_than_a_random_one(name):
    random_one, scripted = (games(name, opponent=opponent, player="both") for opponent in ("random", "scripted"))
    assert mean_reward(scripted, "random") < mean_reward(random_one, "random") - 0.05


def test_scripted_players_make_valid_moves():
    rng = random.Random(0)
    for name, script in (("ConnectFour-v0", answer_connect_four), ("KuhnPoker-v0", play_kuhn_poker)):
        for seed in range(10):
            game = load_game(name, {}).start(seed, 2)
            while not game.is_over:
                assert game.play(script(game, rng))


def test_both_places_are_played():
    taskset = games("TicTacToe-v0", player="both")
    places = [task.data["player"] for task in taskset.tasks("train")[:4]]
    assert places == [0, 1, 0, 1]
    opening, _ = asyncio.run(play(taskset.environment(taskset.tasks("train")[1]), []))
    assert "You are Player 1" in opening[0]["content"]
    assert "Player 0: [" in opening[1]["content"]  # who began


async def self_played(taskset, replies):
    """The last turns of all sides of a game in self-play."""
    episodes = taskset.self_play(taskset.tasks("train")[0])

    async def side(episode, moves):
        try:
            return (await play(episode, moves))[1]
        finally:
            await episode.close()

    return await asyncio.gather(*(side(*one) for one in zip(episodes, replies, strict=True)), return_exceptions=True)


def test_self_play_gives_one_side_what_the_other_loses():
    taskset = games("TicTacToe-v0", opponent="self")
    assert taskset.roles == ["player 0", "player 1"]
    first, second = asyncio.run(self_played(taskset, [["[0]", "[1]", "[2]"], ["[3]", "[4]", "[5]"]]))
    assert (first[-1].reward, second[-1].reward) == (1.0, 0.0)
    assert first[-1].done and second[-1].done


def test_an_invalid_move_is_no_win_for_the_other_side():
    taskset = games("TicTacToe-v0", opponent="self")
    first, second = asyncio.run(self_played(taskset, [["[0]", "no", "no"], ["[3]", "[4]"]]))
    assert (first[-1].reward, second[-1].reward) == (0.0, 0.5)
    assert second[-1].metrics["won"] == 0 and second[-1].metrics["other_invalid"] == 1


def test_who_waits_for_a_side_that_has_left_is_told():
    taskset = games("TicTacToe-v0", opponent="self")
    first, second = asyncio.run(self_played(taskset, [["[0]"], ["[3]", "[4]"]]))
    assert len(first) == 1 or isinstance(first, RolloutError)
    assert isinstance(second, RolloutError) and second.reason == "partner_left"


def conversation(name: str, number: int) -> list[str]:
    taskset = games(name)
    return [message["content"] for message in taskset.scripts["random"](taskset.tasks("train")[number], 0)]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Mastermind-v0", "TowerOfHanoi-v0"])
def test_a_player_at_random_that_finds_no_valid_move_makes_another_and_loses(name):
    assert mean_reward(games(name), "random", 3) == 0.0


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


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("TicTakToe-v0", {}, "Did you mean `TicTacToe-v0`"),
        ("TicTacToe-v0", {"opponent": "clever"}, "no `opponent` 'clever'"),
        ("TicTacToe-v0", {"player": 2}, "`player` must be one of 0, 1 or"),
        ("TicTacToe-v0", {"player": True}, "`player` must be one of"),
        ("TicTacToe-v0", {"num_players": 3}, "cannot begin with 3 players"),
        ("TicTacToe-v0", {"config": {"size": 4}}, "cannot be made with config"),
        ("TicTacToe-v0", {"num_test": -1}, "`num_test` must be 0 or more"),
        ("TicTacToe-v0", {"opponent": "self", "player": 1}, "`player` has no effect"),
        ("GuessTheNumber-v0", {"opponent": "self"}, "has one player"),
        ("Othello-v0", {"opponent": "scripted"}, "no scripted opponent"),
        ("TwentyQuestions-v0", {}, "remote service"),
        ("UsedCar-v0-balanced", {}, "is not in the package"),
    ],
)
def test_what_cannot_be_played_is_refused(name, args, said):
    with pytest.raises(UserError, match=said):
        games(name, **args)


@pytest.mark.parametrize("number", range(4))
def test_the_best_button_earns_everything_and_the_worst_nothing(number):
    taskset = games("Bandit-v0", num_train=4)

    async def reward(pick) -> float:
        episode = taskset.environment(taskset.tasks("train")[number])
        await episode.start()
        while True:
            chances = episode._match.game.inner.state.game_state["ground_truth"]
            turn = await episode.step(f"[{pick(chances, key=chances.get)}]")
            if turn.done:
                assert turn.metrics["won"] == float(pick is max)
                return turn.reward

    assert asyncio.run(reward(max)) == 1.0 and asyncio.run(reward(min)) == 0.0
    assert 0 < asyncio.run(reward(lambda chances, key: sorted(chances, key=key)[2])) < 1


def test_a_set_earns_its_share_of_the_turns():
    from textarena.envs.Set.env import _is_set  # of a package that may be missing

    taskset = games("Set-v0", num_train=1)

    async def play() -> float:
        episode = taskset.environment(taskset.tasks("train")[0])
        await episode.start()
        for _ in range(30):
            state = episode._match.game.inner.state.game_state
            threes = list(combinations(range(len(state["board"])), 3))
            sets = [three for three in threes if _is_set([state["board"][card] for card in three])]
            others = [three for three in threes if three not in sets]
            chosen = sets[0] if sets and not state["score"] else others[0]
            turn = await episode.step(str([card + 1 for card in chosen]))
            if turn.done:
                assert state["score"] == 1
                return turn.reward
        raise AssertionError("the game did not end")

    assert asyncio.run(play()) == 1 / 20


FILLED = ["[S 9]", "[E 5]", "[N 6]", "[D 7]", "[M 1]", "[O 0]", "[R 8]"]


@pytest.mark.parametrize(
    ("replies", "reward"),
    [([*FILLED, "[Y 2]"], 1.0), ([*FILLED, "[Y 3]"], 0.0), (FILLED + ["[S 9]"] * 10, 0.0)],
)
def test_only_an_equation_that_holds_earns_something(replies, reward):
    turns = played("Cryptarithm-v0", *replies, config={"max_turns": 12})
    assert turns[-1].done and turns[-1].reward == turns[-1].metrics["won"] == reward


def test_the_reward_of_one_reply_is_noted_where_it_is_high(capsys):
    prepare_taskset(games("ConnectFour-v0"))
    assert "ConnectFour pays 0.83 on average if every reply to the player at random is `[0]`" in capsys.readouterr().err
    prepare_taskset(games("2048-v0-ultra-easy"))
    assert "2048-v0-ultra-easy pays 1.00 on average if every move is a valid one" in capsys.readouterr().err
    for name, args in (("ConnectFour-v0", {"opponent": "self"}), ("2048-v0", {})):
        prepare_taskset(games(name, **args))
    assert capsys.readouterr().err == ""
