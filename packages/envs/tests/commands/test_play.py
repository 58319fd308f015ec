"""`slimrl play` with the games of this plug-in, from the person's side."""

import re

import pytest

from packages.tools.tests.commands.test_play import command, played
from packages.tools.tests.commands.test_play_opponent import against
from packages.tools.tests.commands.test_play_opponent import played as opposed
from slimrl.environments.find import load_taskset
from slimrl.environments.scripts import demonstrate
from slimrl.errors import UserError
from slimrl_envs.matching_game.rules.protocol import LAST_MESSAGE


def matching_game(role: int) -> tuple[list[str], str]:
    """The flags of a small game that the expert ends before it has to, with an agreement, and what it types in it."""
    taskset = load_taskset("matching-game", {"n": 3, "role": role})
    games = (demonstrate(taskset, task) for task in taskset.tasks("train"))
    place, game = next((place, game) for place, game in enumerate(games) if LAST_MESSAGE not in game[-2]["content"])
    argv = ["--id", "matching-game", "--args.n", "3", "--args.role", str(role), "--task", str(place)]
    replies = [message["content"] for message in game if message["role"] == "assistant"]
    return argv, "\n\n".join([*replies, "n\n"])


@pytest.mark.slow
@pytest.mark.parametrize("role", [1, 2])
def test_a_whole_matching_game_from_either_side(role: int) -> None:
    argv, typed = matching_game(role)
    seen = played(argv, typed)
    assert "Reviewer Paper Similarity Scores:" in seen
    assert "The episode is over. Reward: " in seen
    assert re.search(r"agreed +1\n", seen)
    again = [line for line in played(argv, "/expert\n/quit\n").splitlines() if line.startswith("[propose]")]
    assert again and all(line in seen for line in again)  # the expert of /expert plays that very game


@pytest.mark.slow
def test_a_matching_game_against_a_model() -> None:
    propose = "[propose] Proposal:\nBLEU: Ava\nElectra: Daniel\nGloVe: Sofia"
    argv = ["--id", "matching-game", "--args.n", "3", "--args.partner", "self", "--task", "0"]
    seen = opposed("[message] What do you propose?\n\n[accept]\n\n", against([propose], seq_len=4000), *argv)
    assert "[propose] Proposal:\nBLEU: Ava\nElectra: Daniel\nGloVe: Sofia\n" in seen
    assert re.search(r"agreed +1\n", seen)
    seen = opposed(f"{propose}\n\n", against(["[accept]"], seq_len=4000), *argv)
    assert re.search(r"agreed +1\n", seen)


def test_a_perfect_game_of_many_turns_is_not_called_wrong() -> None:
    """Six sixths add up to a little less than one."""
    taskset = load_taskset("alphabet-sort", {"min_turns": 6, "max_turns": 6, "num_train": 3, "num_test": 3})
    task = taskset.tasks("train")[0]
    said = [message["content"] for message in demonstrate(taskset, task) if message["role"] == "assistant"]
    argv = ["--id", "alphabet-sort", "--task", task.id, "--args.num_train", "3", "--args.num_test", "3"]
    argv += ["--args.min_turns", "6", "--args.max_turns", "6"]
    seen = played(argv, "".join(f"{reply}\n\n" for reply in said))
    assert "Reward: 1 (task" in seen and "An evaluation would call it" not in seen


@pytest.mark.slow
def test_a_game_whose_other_side_is_the_policys_needs_a_model() -> None:
    with pytest.raises(UserError, match="a model has the other side of matching-game: name one with"):
        played(["--id", "matching-game", "--args.n", "3", "--args.partner", "self"], "")


def test_the_command_alone_names_the_games() -> None:
    assert "matching-game" in command([], "").stderr
