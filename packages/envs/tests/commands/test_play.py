"""`slimrl play` with the games of this plug-in, from the person's side."""

import io
import re

import pytest

from slimrl.cli import run
from slimrl.environments.find import load_taskset
from slimrl.environments.scripts import demonstrate
from slimrl.plugins import COMMANDS, names
from slimrl_envs.matching_game.rules.protocol import LAST_MESSAGE

pytestmark = pytest.mark.skipif("play" not in names(COMMANDS), reason="the command `play` is not installed")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """A function that runs the command for a person who types a text, and returns its status and all that it shows."""

    def play(argv: list[str], typed: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        status = run(["play", *argv])
        return status, "".join(capfd.readouterr())

    return play


def replies_of(env_id: str, args: dict[str, object], place: int) -> list[str]:
    taskset = load_taskset(env_id, args)
    said = demonstrate(taskset, taskset.tasks("train")[place])
    return [message["content"] for message in said if message["role"] == "assistant"]


@pytest.mark.slow
@pytest.mark.parametrize("role", [1, 2])
def test_a_whole_matching_game_from_either_side(role: int, shown) -> None:
    args = {"n": 3, "role": role}
    taskset = load_taskset("matching-game", args)
    games = (demonstrate(taskset, task) for task in taskset.tasks("train"))
    place = next(place for place, game in enumerate(games) if LAST_MESSAGE not in game[-2]["content"])
    argv = ["matching-game", "--args.n", "3", "--args.role", str(role), "--task", str(place)]
    status, seen = shown(argv, "\n\n".join([*replies_of("matching-game", args, place), "n\n"]))
    assert status == 0 and "Reviewer Paper Similarity Scores:" in seen and "The episode is over. Reward: " in seen
    assert re.search(r"agreed +1\n", seen)
    again = [line for line in shown(argv, "/expert\n/quit\n")[1].splitlines() if line.startswith("[propose]")]
    assert again and all(line in seen for line in again)  # the expert of /expert plays that very game


@pytest.mark.slow
def test_a_game_whose_other_side_is_the_policys_is_refused(shown) -> None:
    status, seen = shown(["matching-game", "--args.n", "3", "--args.partner", "self"], "")
    assert status == 2 and "the policy has the other side of matching-game, too" in " ".join(seen.split())


def test_the_command_alone_names_the_games(shown) -> None:
    assert "matching-game" in shown([], "")[1]
