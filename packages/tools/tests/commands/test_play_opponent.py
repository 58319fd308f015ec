"""A person against a model: two sides of one table, one of them played by the agent loop."""

import asyncio
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from slimrl.config.play import PlayConfig
from slimrl.config.reading.load import Resolved, load
from slimrl.environments.turn_taking import TurnTaking
from slimrl.errors import UserError
from slimrl.rollout.episode import EpisodeSpec
from slimrl.rollout.games import self_play_specs
from slimrl.types import Environment, Message, SamplingParams, Split, Task, Taskset, Turn
from slimrl_tools.commands.play import run_play
from slimrl_tools.play.opponent import Opposed, own_place, seat_model
from slimrl_tools.play.terminal import Terminal
from tests.rollout.scripted import TOKENIZER, ScriptedClient, make_context

MODULE = "packages.tools.tests.commands.test_play_opponent:Relay"


def tokens(text: str) -> list[int]:
    return [*TOKENIZER.encode(text, add_special_tokens=False), TOKENIZER.eos_token_id]


@dataclass
class Course:
    """What has been said."""

    said: list[tuple[int, str]]


class Relay(Taskset):
    """Two players pass words on, four in all; the reward is how many were said by the second."""

    def __init__(self, alone: bool = False, role: int = 1) -> None:
        self.roles: Sequence[str] = () if alone else ("first", "second")

    def tasks(self, split: Split) -> list[Task]:
        return [Task(f"{split}/0", {})]

    def environment(self, task: Task) -> Environment:
        return self.self_play(task)[0]

    def self_play(self, task: Task) -> Sequence[Environment]:
        course, table = Course([]), TurnTaking()
        return [Side(course, table, place) for place in (0, 1)]


class Side:
    def __init__(self, course: Course, table: TurnTaking, place: int) -> None:
        self.course, self.table, self.place = course, table, place

    async def start(self) -> list[Message]:
        await self._mine()
        return [{"role": "user", "content": self._heard() or "begin"}]

    async def step(self, reply: str) -> Turn:
        self.course.said.append((self.place, reply))
        self.table.notify()
        await self._mine()
        if len(self.course.said) >= 4:
            return Turn(done=True, reward=float(sum(place for place, _ in self.course.said)))
        return Turn(done=False, messages=[{"role": "user", "content": self._heard()}])

    async def close(self) -> None:
        self.table.leave(f"side {self.place}")

    def _heard(self) -> str:
        return self.course.said[-1][1] if self.course.said else ""

    async def _mine(self) -> None:
        await self.table.wait_until(lambda: len(self.course.said) >= 4 or len(self.course.said) % 2 == self.place)


Seating = Callable[[Taskset, PlayConfig], Callable[[Task], Environment]]


def against(replies: Sequence[str], seq_len: int = 400) -> Seating:
    """Seats a model that says these words."""

    def seat(taskset: Taskset, config: PlayConfig) -> Callable[[Task], Environment]:
        context = make_context(ScriptedClient([tokens(reply) for reply in replies]), seq_len=seq_len)
        sampling = SamplingParams(max_tokens=200)
        return lambda task: Opposed(
            self_play_specs(EpisodeSpec(taskset, task, sampling)), own_place(taskset, config), context
        )

    return seat


def resolved(*argv: str) -> Resolved[PlayConfig]:
    return load(PlayConfig, ["--id", MODULE, "--worker", "none", "--model.name", "x", *argv], {})


def played(typed: str, seat: Seating, *argv: str) -> str:
    """What the person saw, with a model that is seated so."""
    screen = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slimrl_tools.commands.play.seat_model", seat)
        assert run_play(resolved(*argv), Terminal(io.StringIO(typed), screen)) == 0
    return screen.getvalue()


def test_a_person_begins_and_a_model_answers() -> None:
    seen = played("one\n\nthree\n\n", against(["two", "four"]))
    assert "--- user ---\nbegin\n--- you ---\none\n--- user ---\ntwo\n--- you ---\nthree\n" in seen
    assert "The episode is over. Reward: 2 (task" in seen


def test_a_person_is_second_by_its_role() -> None:
    seen = played("two\n\nfour\n\n", against(["one", "three"]), "--args.role", "2")
    assert "--- user ---\none\n--- you ---\ntwo\n--- user ---\nthree\n--- you ---\nfour\n" in seen
    assert "Reward: 2 (task" in seen


def test_a_model_that_can_read_no_further_ends_the_game_and_says_so() -> None:
    seen = played(f"{'long ' * 40}\n\n{'long ' * 40}\n\n", against(["two", "four"], seq_len=150))
    assert "The episode failed; training would drop it (partner_left): side 1 left the table" in seen
    assert "the model failed: prompt_too_long" in seen or "has read seq_len = 150 tokens" in seen


def test_a_model_from_disk_sits_down(tiny_dir: Path) -> None:
    argv = ["--model.name", str(tiny_dir), "--model.dtype", "float32", "--sampling.max_tokens", "5"]
    seen = played("one\n\nthree\n\n", seat_model, *argv)
    assert "--- you ---\none\n--- user ---\n" in seen
    assert "The episode is over. Reward: 2 (task" in seen


def test_leaving_stops_the_model_too() -> None:
    async def tasks_left() -> int:
        return len(asyncio.all_tasks()) - 1

    context = make_context(ScriptedClient([tokens("two")]))
    with asyncio.Runner() as runner:
        game = Opposed(self_play_specs(EpisodeSpec(Relay(), Task("t", {}), SamplingParams(max_tokens=9))), 0, context)
        assert runner.run(game.start()) == [{"role": "user", "content": "begin"}]
        assert runner.run(tasks_left()) == 1
        runner.run(game.close())
        assert runner.run(tasks_left()) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--id", "reverse-text"], "model.name = x cannot sit down: `reverse-text` has no other side"),
        (["--args.alone", "true"], "has no other side with these `args`. For matching-game set `--args.partner self`"),
        (["--args.role", "3"], "args.role = 3 is none of 1 to 2 (first, second)."),
    ],
)
def test_a_model_without_a_place_is_refused(argv: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        played("", against(["x"]), *argv)
    assert message in str(error.value)
