"""Self-play through the ordinary agent loop, by two at a table who speak in turn, and by some who do not stay."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from slimrl.errors import RolloutError, UserError
from slimrl.inference.client import Completion
from slimrl.rollout import games
from slimrl.rollout.episode import EpisodeSpec
from slimrl.rollout.games import run_groups, self_play_specs
from slimrl.types import Message, SamplingParams, Task, Taskset, Turn
from tests.rollout.scripted import CHAT, LOGPROB, TOKENIZER, VERSION, make_context, user

NUM_MOVES = 4


@dataclass
class Counting:
    """Two count together, Ann first: who says the next number is right, and the game is over at `NUM_MOVES`. A wrong
    number is to be said again."""

    said: list[str] = field(default_factory=list)
    left: str = ""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def is_next(self, place: int) -> bool:
        return len(self.said) % 2 == place or self.is_over

    @property
    def is_over(self) -> bool:
        return len(self.said) == NUM_MOVES

    async def wait(self, place: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.is_next(place) or self.left)
        if not self.is_next(place):
            raise RolloutError("partner_left", f"{self.left} left")

    async def change(self, said: str = "", left: str = "") -> None:
        self.said += said
        self.left = self.left or left
        async with self.changed:
            self.changed.notify_all()


@dataclass
class Counter:
    """One of the two."""

    game: Counting
    place: int
    role: str
    fault: str = ""

    async def start(self) -> list[Message]:
        await self.game.wait(self.place)
        if self.fault == "start raises":
            raise KeyError("missing")
        return [user(f"{self.role}: {''.join(self.game.said)}")]

    async def step(self, reply: str) -> Turn:
        if reply != str(len(self.game.said)):
            return Turn(done=False, messages=[user("wrong")])
        if self.fault == "step raises":
            raise ZeroDivisionError
        await self.game.change(said=reply)
        await self.game.wait(self.place)
        if self.game.is_over:
            return Turn(done=True, reward=1.0 + self.place)
        return Turn(done=False, messages=[user(f"{self.role}: {''.join(self.game.said)}")])

    async def close(self) -> None:
        await self.game.change(left=self.role)


class Alone:
    """One number, and the episode is over."""

    async def start(self) -> list[Message]:
        return [user("ann: ")]

    async def step(self, reply: str) -> Turn:
        return Turn(done=True, reward=0.5)


@dataclass
class Games(Taskset):
    """A taskset of such games; `faults` are by role."""

    faults: dict[str, str] = field(default_factory=dict)
    roles: Sequence[str] = ("ann", "ben")
    num_seats: int = 2

    def tasks(self, split: str) -> list[Task]:
        return [Task(split, {})]

    def environment(self, task: Task) -> Any:
        return Alone()

    def self_play(self, task: Task) -> list[Counter]:
        if "table" in self.faults:
            raise ValueError("no such game")
        game = Counting()
        return [
            Counter(game, place, role, self.faults.get(role, ""))
            for place, role in enumerate(("ann", "ben")[: self.num_seats])
        ]


@dataclass
class CountingClient:
    """Says the next number after those that it reads last, but first what is in `first`; `now` of it are at work."""

    first: dict[str, list[str]] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        self.seeds.append(params.seed)
        await asyncio.sleep(0)
        said = [line for line in CHAT.text(prompt).splitlines() if ":" in line][-1]
        role, _, numbers = said.removeprefix("user").partition(": ")
        replies = self.first.get(role)
        text = replies.pop(0) if replies else str(len(numbers))
        tokens = (*TOKENIZER.encode(text, add_special_tokens=False), CHAT.end_of_turn)
        return Completion(tokens, (LOGPROB,) * len(tokens), (VERSION,) * len(tokens), "stop")


def attempt_at(games: Games, seed: int = 0) -> EpisodeSpec:
    return EpisodeSpec(games, Task("a game", {}), SamplingParams(max_tokens=20, seed=seed))


def play(games: Games, client: Any = None, **limits: Any) -> list[Any]:
    context = make_context(client or CountingClient(), **limits)
    (rollouts,) = asyncio.run(asyncio.wait_for(run_groups([self_play_specs(attempt_at(games))], context), 60))
    return rollouts


def test_two_episodes_play_each_other_and_each_reads_only_its_own():
    ann, ben = play(Games())
    assert [rollout.failure for rollout in (ann, ben)] == ["", ""]
    assert [message["content"] for message in ann.messages] == ["ann: ", "0", "ann: 01", "2"]
    assert [message["content"] for message in ben.messages] == ["ben: 0", "1", "ben: 012", "3"]
    assert (ann.reward, ben.reward) == (1.0, 2.0)
    for rollout in (ann, ben):
        assert rollout.loss_mask_T == tuple(version == VERSION for version in rollout.versions_T)


def test_the_attempts_of_a_table_name_their_roles_and_draw_otherwise():
    specs = self_play_specs(attempt_at(Games(), seed=5))
    assert [spec.role for spec in specs] == ["ann", "ben"]
    assert specs[0].sampling.seed == 5 and specs[0].taskset.tasks("test") == Games().tasks("test")
    client = CountingClient()
    asyncio.run(run_groups([specs], make_context(client)))
    assert len(set(client.seeds)) == NUM_MOVES


@pytest.mark.parametrize("role", ["ann", "ben"])
@pytest.mark.parametrize("fault", ["start raises", "step raises"])
def test_whoever_waits_for_one_that_fails_is_told(role: str, fault: str):
    rollouts = dict(zip(("ann", "ben"), play(Games({role: fault})), strict=True))
    other = rollouts["ben" if role == "ann" else "ann"]
    assert rollouts[role].failure == "environment_error"
    assert (other.failure, other.failure_detail) == ("partner_left", f"{role} left")


class Broken(CountingClient):
    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        if len(self.seeds) == 2:
            raise RolloutError("model_error", "gone")
        return await super().sample(prompt, params)


class Slow(CountingClient):
    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        await asyncio.sleep(0.5 if len(self.seeds) == 2 else 0)
        return await super().sample(prompt, params)


LEAVES = {
    "out of turns": (lambda: CountingClient({"ann": ["7", "8"]}), {"max_turns": 2}, ["", "partner_left"]),
    "out of context": (
        lambda: CountingClient({"ann": ["7" * 15] * 20}),
        {"seq_len": 100, "max_turns": 50},
        ["", "partner_left"],
    ),
    "without a model": (Broken, {}, ["model_error", "partner_left"]),
    "too slow": (Slow, {"timeout_s": 0.2}, ["partner_left", "timeout"]),
}


@pytest.mark.parametrize("case", LEAVES)
def test_whoever_waits_for_one_that_leaves_is_told(case: str):
    make, limits, failures = LEAVES[case]
    ann, ben = play(Games(), make(), **limits)
    assert [ann.failure, ben.failure] == failures
    assert ann.failure or (ann.reward, ann.metrics["unfinished"]) == (0.0, 1.0)
    assert ann.failure or ann.metrics["context_full"] == (case == "out of context")


@pytest.mark.parametrize(("games", "detail"), [(Games({"table": "x"}), "no such"), (Games(num_seats=1), "1 episodes")])
def test_a_table_that_cannot_be_laid_fails_all_its_episodes(games: Games, detail: str):
    rollouts = play(games)
    assert [rollout.failure for rollout in rollouts] == ["environment_error"] * 2
    assert all(detail in rollout.failure_detail for rollout in rollouts)


def test_a_mistake_of_the_users_stops_the_run_whoever_waits():
    class Refused(CountingClient):
        async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
            raise UserError("set `key`")

    with pytest.raises(UserError, match="set `key`"):
        play(Games(), Refused())


@pytest.mark.parametrize("num_concurrent", [1, 2, 3, 5])
def test_many_tables_and_few_places_end_in_order_and_no_more_are_at_work(num_concurrent: int):
    now, most = [0], [0]

    class Counted(CountingClient):
        async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
            now[0] += 1
            most[0] = max(most[0], now[0])
            try:
                return await super().sample(prompt, params)
            finally:
                now[0] -= 1

    context = replace(make_context(Counted()), num_concurrent=num_concurrent)
    alone = Games(roles=())
    specs = [attempt_at(alone if seed % 3 == 1 else Games(), seed * 1000) for seed in range(9)]

    async def all_of_them() -> list[list[Any]]:
        return await asyncio.wait_for(run_groups([self_play_specs(spec) for spec in specs], context), 60)

    tables = asyncio.run(all_of_them())
    assert [[rollout.reward for rollout in rollouts] for rollouts in tables] == [[1.0, 2.0], [0.5], [1.0, 2.0]] * 3
    assert most[0] <= max(2, num_concurrent)


def test_a_game_that_is_cancelled_gives_each_place_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_episode(tidies_s: Any, context: Any) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(tidies_s)

    async def scenario() -> None:
        own = games.Places(4, 2)
        for begins_s in (0.0, 0.005):
            game: Any = [0.0, 0.02]
            playing = asyncio.create_task(own.play(game, None))
            await asyncio.sleep(begins_s)
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing
            assert own._free._value == 4

    monkeypatch.setattr(games, "run_episode", run_episode)
    asyncio.run(scenario())
