"""`matching-game`: two players assign reviewers to papers, each of whom knows only some of the scores, by talking.

The reward, at the end only, is the value of what they agree on as a share of the best there is; without an agreement
it is 0. The rules are `games/matching/`; who sits opposite is the subject of `environments/matching_others.py`.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from slimrl.environments.llm_partner import llm_partners_of
from slimrl.environments.matching_episode import MatchingEpisode
from slimrl.environments.matching_others import Asked, Itself, Other, Partner, Scripted, heard_since
from slimrl.environments.matching_record import kind_of_failure
from slimrl.environments.table import Table
from slimrl.errors import UserError, nearest
from slimrl.games.matching.deal import Deal
from slimrl.games.matching.game import MAX_ERRORS, MAX_TURNS, MatchingGame
from slimrl.games.matching.generator import MAX_SIZE, MIN_SIZE, deals
from slimrl.games.matching.rows import read_games
from slimrl.games.matching.shy import ShyPartner
from slimrl.games.matching.state import deal_of, game_state
from slimrl.games.matching.talkers import Asker, RandomTalker
from slimrl.types import Message, Rollout, Split, Task

PARTNERS = ("scripted", "llm", "self")
ROLES = ("player 1", "player 2")
# One game in five is held out, decided by a hash of its table: no game is ever in both splits, whatever `args` say.
TEST_SHARE = 5


@dataclass
class MatchingTaskset:
    """Games, each on its own. The fields are the `args` of the config section.

    `partner` is `scripted` (`games/matching/shy.py`), `llm` (of which `llm` has the settings: the fields of
    `PartnerServer` in `environments/llm_partner.py`), or `self`: the policy plays both sides, which train together.
    `role` is whom the policy is, 1 (who begins) or 2. Scripts, such as the expert of a warm-up, play with the scripted
    partner whatever `partner` is.

    A game is over after `max_turns` messages of both together; with `last_turn_rule` the policy is told at its last
    one to make its final proposal. It may make `max_errors` errors. `games` is a file of games, one a line (as
    `scripts/generate_data.py` writes), of any size; without one, `num_train` and `num_test` of `n` papers are made up
    from `seed`.
    """

    n: int = 8
    partner: str = "scripted"
    role: int = 1
    max_turns: int = MAX_TURNS
    last_turn_rule: bool = True
    max_errors: int = MAX_ERRORS
    games: str = ""
    num_train: int = 1000
    num_test: int = 100
    seed: int = 0
    llm: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.partner not in PARTNERS:
            raise UserError(f"matching-game: there is no `partner` {self.partner!r}.{nearest(self.partner, PARTNERS)}")
        if self.role not in (1, 2):
            raise UserError(f"matching-game: `role` is 1 for who begins or 2, not {self.role!r}.")
        if not MIN_SIZE <= self.n <= MAX_SIZE:
            raise UserError(f"matching-game: `n` must be {MIN_SIZE} to {MAX_SIZE}, not {self.n}.")
        for name, value, least in (
            ("max_turns", self.max_turns, 2),
            ("max_errors", self.max_errors, 0),
            ("num_train", self.num_train, 0),
            ("num_test", self.num_test, 0),
        ):
            if value < least:
                raise UserError(f"matching-game: `{name}` must be {least} or more, not {value}.")
        if self.llm and self.partner != "llm":
            raise UserError(f'matching-game: `llm` is for `partner = "llm"`, and this is "{self.partner}".')
        self._llm = llm_partners_of(self.llm) if self.partner == "llm" else None
        self._own = read_games(Path(self.games).expanduser()) if self.games else []
        self._tasks: dict[Split, list[Task]] = {}

    @property
    def roles(self) -> Sequence[str]:
        return ROLES if self.partner == "self" else ()

    def tasks(self, split: Split) -> Sequence[Task]:
        """None for `validation`. Raises UserError when there are not that many games."""
        if split == "validation":
            return []
        if split not in self._tasks:
            self._tasks[split] = self._read(split) if self.games else self._made_up(split)
        return self._tasks[split]

    def environment(self, task: Task) -> MatchingEpisode:
        game, player = self._game(task), self.role - 1
        return self._episode(game, player, self._partner(game, 1 - player, task))

    def table(self, task: Task) -> Sequence[MatchingEpisode]:
        """Both sides of one game, which play each other."""
        game, table = self._game(task), Table()
        others = [Itself(game, 1 - player, table, role) for player, role in enumerate(ROLES)]
        return [self._episode(game, player, other) for player, other in enumerate(others)]

    def demonstrate(self, task: Task) -> list[Message]:
        """By one who asks for what it lacks and then proposes; see `games/matching/talkers.py`."""
        return self._played(task, Asker(self._game(task).deal, self.role - 1, self.max_turns).reply)

    def play_at_random(self, task: Task, seed: int) -> list[Message]:
        """By one who proposes an assignment at random."""
        rng = random.Random(f"{seed}/{task.id}")
        return self._played(task, RandomTalker(self._game(task).deal, self.role - 1, rng).reply)

    def what_went_wrong(self, rollout: Rollout) -> str:
        return kind_of_failure(rollout.metrics, self.max_errors)

    def rest(self) -> None:
        """Has a partner that shares the policy's device let go of its memory."""
        if self._llm:
            self._llm.rest()

    def _game(self, task: Task) -> MatchingGame:
        return MatchingGame(deal_of(task.data["game_state"], task.id), self.max_turns, self.max_errors)

    def _partner(self, game: MatchingGame, player: int, task: Task, scripted: bool = False) -> Asked:
        partner: Partner
        if self._llm and not scripted:
            partner = self._llm.partner(game.deal, player)
        else:
            partner = Scripted(ShyPartner(game.deal, player, random.Random(f"matching-game/{task.id}")))
        return Asked(game, player, partner)

    def _episode(self, game: MatchingGame, player: int, other: Other) -> MatchingEpisode:
        return MatchingEpisode(game, player, other, self.last_turn_rule)

    def _played(self, task: Task, reply: Callable[[str], str]) -> list[Message]:
        """A whole conversation with the scripted partner, whoever the partner is in training."""

        async def conversation() -> list[Message]:
            game, player = self._game(task), self.role - 1
            episode = self._episode(game, player, self._partner(game, 1 - player, task, scripted=True))
            messages, num_heard = await episode.start(), 0
            while True:
                heard = heard_since(game, num_heard, 1 - player)
                num_heard = len(game.history)
                text = reply(heard)
                messages.append({"role": "assistant", "content": text})
                turn = await episode.step(text)
                if turn.done:
                    return messages
                messages += turn.messages

        return asyncio.run(conversation())

    def _read(self, split: Split) -> list[Task]:
        return [_task(f"{split}/{deal.game_id}", deal) for deal in self._own if split_of(deal) == split]

    def _made_up(self, split: Split) -> list[Task]:
        """Games of a split, no two with the same table: those that `scripts/generate_data.py` deals for `n` and `seed`,
        in its order."""
        num = self.num_train if split == "train" else self.num_test
        dealt = deals(random.Random(f"matching-game/{self.n}/{self.seed}"), self.n)
        games: dict[Any, Deal] = {}
        for deal in islice(dealt, 100 * num):
            if split_of(deal) == split:
                games.setdefault(deal.table, deal)
            if len(games) == num:
                break
        if len(games) < num:
            raise UserError(f"matching-game: found only {len(games)} games for `num_{split}` = {num}; lower it.")
        return [_task(f"{split}/{place}", deal) for place, deal in enumerate(games.values())]


def split_of(deal: Deal) -> Split:
    """Which split a game belongs to: a function of its table."""
    table = repr(deal.table).encode()
    return "test" if hashlib.sha256(table).digest()[0] % TEST_SHARE == 0 else "train"


def _task(task_id: str, deal: Deal) -> Task:
    return Task(task_id, {"game_state": game_state(deal)})
