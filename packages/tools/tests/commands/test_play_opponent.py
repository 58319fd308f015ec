"""A person against a model: two sides of one table, one of them played by the agent loop."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from slimrl.config.play import PlayConfig
from slimrl.config.reading.load import load
from slimrl.errors import UserError
from slimrl.rollout.episode import EpisodeSpec
from slimrl.rollout.games import self_play_specs
from slimrl.types import Environment, SamplingParams, Task, Taskset, Turn
from slimrl_tools.commands.play import run_play
from slimrl_tools.play.opponent import Opposed, own_place, seat_model
from slimrl_tools.play.terminal import Terminal
from tests.rollout.scripted import make_context
from tests.rollout.test_games import Counter, Counting, CountingClient, Games

SAMPLING = SamplingParams(max_tokens=200)


class Speaker(Counter):
    """Counts on, whatever it says."""

    async def step(self, reply: str) -> Turn:
        return await super().step(str(len(self.game.said)))


class Spoken(Games):
    """Two speak in turn, four times in all; the second one earns 2."""

    def __init__(self, alone: bool = False, role: int = 1) -> None:
        super().__init__(roles=() if alone else ("ann", "ben"))

    def self_play(self, task: Task) -> list[Counter]:
        game = Counting()
        return [Speaker(game, place, role) for place, role in enumerate(self.roles)]


Seating = Callable[[Taskset, PlayConfig], Callable[[Task], Environment]]


def against(seq_len: int = 400) -> Seating:
    """Seats a model that counts on."""

    def seat(taskset: Taskset, config: PlayConfig) -> Callable[[Task], Environment]:
        context, mine = make_context(CountingClient(), seq_len=seq_len), own_place(taskset, config)
        return lambda task: Opposed(self_play_specs(EpisodeSpec(taskset, task, SAMPLING)), mine, context)

    return seat


def played(typed: str, seat: Seating, *argv: str) -> str:
    """What the person saw, with a model that is seated so."""
    screen, words = io.StringIO(), ["--id", f"{__name__}:Spoken", "--worker", "none", "--model.name", "x", *argv]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slimrl_tools.commands.play.seat_model", seat)
        assert run_play(load(PlayConfig, words, {}), Terminal(io.StringIO(typed), screen)) == 0
    return screen.getvalue()


@pytest.mark.parametrize(
    ("argv", "typed", "shown", "reward"),
    [
        pytest.param([], "0\n\n2\n\n", "user ---\nann: \n--- you ---\n0\n--- user ---\nann: 01\n", 1, id="first"),
        pytest.param(
            ["--args.role", "2"], "1\n\n3\n\n", "user ---\nben: 0\n--- you ---\n1\n--- user ---\nben: 012\n", 2,
            id="second, by the role",
        ),
    ],
)  # fmt: skip
def test_a_person_plays_one_side_and_a_model_the_other(argv: list[str], typed: str, shown: str, reward: int) -> None:
    seen = played(typed, against(), *argv)
    assert shown in seen
    assert f"The episode is over. Reward: {reward} (task" in seen


def test_a_model_that_can_read_no_further_ends_the_game_and_says_so() -> None:
    seen = played("0\n\n2\n\n", against(seq_len=20))
    assert "The episode failed; training would drop it (partner_left): ben left" in seen
    assert "the model failed: prompt_too_long" in seen or "has read seq_len = 20 tokens" in seen


def test_a_model_from_disk_sits_down(tiny_dir: Path) -> None:
    argv = ["--model.name", str(tiny_dir), "--model.dtype", "float32", "--sampling.max_tokens", "5"]
    seen = played("one\n\nthree\n\n", seat_model, *argv)
    assert "--- you ---\none\n--- user ---\nann: 01\n" in seen
    assert "The episode is over. Reward: 1 (task" in seen


def test_leaving_stops_the_model_too() -> None:
    async def tasks_left() -> int:
        return len(asyncio.all_tasks()) - 1

    specs = self_play_specs(EpisodeSpec(Games(), Task("t", {}), SAMPLING))
    with asyncio.Runner() as runner:
        game = Opposed(specs, 0, make_context(CountingClient()))
        assert runner.run(game.start()) == [{"role": "user", "content": "ann: "}]
        assert runner.run(tasks_left()) == 1
        runner.run(game.close())
        assert runner.run(tasks_left()) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--id", "reverse-text"], "model.name = x cannot sit down: `reverse-text` has no other side"),
        (["--args.alone", "true"], "has no other side with these `args`. For matching-game set `--args.partner self`"),
        (["--args.role", "3"], "args.role = 3 is none of 1 to 2 (ann, ben)."),
    ],
)
def test_a_model_without_a_place_is_refused(argv: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        played("", against(), *argv)
    assert message in str(error.value)
