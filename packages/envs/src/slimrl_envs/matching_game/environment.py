"""`matching-game`: two players assign reviewers to papers by talking. Each player knows only some of the scores.

The reward is paid only at the end. It is the value of the agreement as a share of the best value; without an agreement
it is 0. `rules/` has the rules, and `episode.py` the opponents.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt

from slimrl.environments.scripts import converse
from slimrl.errors import UserError
from slimrl.types import Message, Rollout, Script, Split, Task, Taskset
from slimrl_envs.matching_game.episode import MatchingEpisode, Opponent, ScriptedPartner, SelfOpponent, Turns
from slimrl_envs.matching_game.llm_partner import llm_partners_of
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import MAX_ERRORS, MatchingGame, Player
from slimrl_envs.matching_game.rules.game_files import deal_of, game_state, read_games
from slimrl_envs.matching_game.rules.generator import MAX_SIZE, MIN_SIZE, deals_of_seed, split_of
from slimrl_envs.matching_game.rules.players import RESERVED, SCRIPTS, Planner
from slimrl_envs.matching_game.rules.protocol import format_act
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner

ROLES = ("player 1", "player 2")


@dataclass
class MatchingTaskset(Taskset):
    """A taskset of independent games. The fields are the `args` of the config section.

    `partner` is `scripted` (`rules/shy_partner.py`), `llm` (a language model) or `self` (the policy plays both sides,
    and both are trained). The field `llm` has the settings of that language model, which are the fields of
    `PartnerServer` in `llm_partner.py`. `role` is the policy's side: 1 starts, 2 answers. Scripts, such as the expert
    of a warm-up, always play with the scripted partner.

    A game is over after `max_turns` messages of both players together. The default is 6 for two papers, else 4 for each
    paper, but at most 20. With `last_turn_rule` the policy reads before its last message that it must propose now. Each
    player may make `max_errors` errors. If a partner that is a language model makes more errors, the game is dropped.

    `games` is a file from `scripts/generate_data.py` with one game a line, of any size. Without a file, `num_train` and
    `num_test` games of `n` papers are generated from `seed`. Games of two papers teach only the format of replies: of
    their two assignments, the one that looks better to a player is always worse. So the player knows the optimum
    without talking.

    With `thoughts` the expert of the warm-up writes the reasoning of its plan before each reply, in <think> tags that
    the partner does not read. With `notes` the policy reads in each turn all numbers that it knows, the largest first,
    with the low numbers in a separate list.
    """

    n: Annotated[int, Field(ge=MIN_SIZE, le=MAX_SIZE)] = 8
    partner: Literal["scripted", "llm", "self"] = "scripted"
    role: Annotated[int, Field(ge=1, le=2)] = 1
    max_turns: Annotated[int | None, Field(ge=2)] = None
    last_turn_rule: bool = True
    max_errors: NonNegativeInt = MAX_ERRORS
    games: str = ""
    num_train: NonNegativeInt = 1000
    num_test: NonNegativeInt = 100
    seed: int = 0
    thoughts: bool = False
    notes: bool = False
    llm: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.llm and self.partner != "llm":
            raise UserError(f'matching-game: `llm` is for `partner = "llm"`, and this is "{self.partner}".')
        self._llm = llm_partners_of(self.llm) if self.partner == "llm" else None
        self._own = read_games(Path(self.games).expanduser()) if self.games else []
        self._tasks: dict[Split, list[Task]] = {}

    @property
    def roles(self) -> Sequence[str]:
        return ROLES if self.partner == "self" else ()

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the games of a split; `validation` has none. Raise UserError if there are too few games."""
        if split == "validation":
            return []
        if split not in self._tasks:
            deals = self._read(split) if self.games else self._generate(split)
            self._tasks[split] = [Task(f"{split}/{deal.game_id}", {"game_state": game_state(deal)}) for deal in deals]
        return self._tasks[split]

    def environment(self, task: Task) -> MatchingEpisode:
        game, player = self._game(task), self.role - 1
        partner = self._llm.partner(game, 1 - player) if self._llm else self._partner(game, 1 - player, task)
        return self._episode(game, player, partner)

    def self_play(self, task: Task) -> Sequence[MatchingEpisode]:
        """Return the episodes of the two sides of one game. The two episodes play against each other."""
        game, turns = self._game(task), Turns()
        others = [SelfOpponent(game, 1 - player, turns, role) for player, role in enumerate(ROLES)]
        return [self._episode(game, player, other) for player, other in enumerate(others)]

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts by name. `expert` is the planner of the warm-up. The others are the players of
        `rules/players.py`."""
        return {"expert": self._plan, **{name: partial(self._play_as, name) for name in SCRIPTS}}

    def _plan(self, task: Task, seed: int) -> list[Message]:
        """Return the conversation of one game that the planner plays for the policy.

        Half of the games have a random, usually smaller number of turns. If there are enough turns for a second
        proposal, the planner makes its first proposal early in half of the games. So the demonstrations include
        rejections, and last messages that must be proposals. If `max_turns` is too small for a second proposal, the
        planner asks a random number of questions, from 1 to the number of papers.
        """
        rng, player = random.Random(f"demonstration/{task.id}"), self.role - 1
        deal, most = self._game(task).deal, self._game(task).max_turns
        max_turns = rng.choice((most, rng.randint(min(2 * deal.size + 2, most), most)))
        game = MatchingGame(deal, max_turns, self.max_errors)
        if _own_turns(most, player) <= RESERVED:
            num_questions = rng.randint(1, deal.size)
        elif rng.random() < 0.5 and _own_turns(max_turns, player) > RESERVED:
            num_questions = 1
        else:
            num_questions = deal.size + 1 + rng.randrange(2)
        planner = Planner(deal, player, max_turns, num_questions)

        def reply() -> str:
            text = format_act(planner.act(game.heard()), deal)
            return f"<think>{planner.thought}</think>\n{text}" if self.thoughts else text

        return self._play(task, game, reply)

    def _play_as(self, name: str, task: Task, seed: int) -> list[Message]:
        game, rng = self._game(task), random.Random(f"{seed}/{task.id}")
        player = SCRIPTS[name](game.deal, self.role - 1, game.max_turns, rng)
        return self._play(task, game, lambda: format_act(player.act(game.heard()), game.deal))

    def failure_kind(self, rollout: Rollout) -> str:
        """Return the kind of failure of an episode that earned less than the best reward. Return an empty text if the
        episode is unfinished."""
        metrics = rollout.metrics
        if metrics["errors"] > self.max_errors:
            return "too many errors"
        if metrics["unfinished"]:
            return ""
        if metrics["agreed"]:
            mark = "its own view" if metrics["score"] < metrics["own_view"] else "the best"
            return f"agreed on less than {mark}"
        if metrics["valid_proposals"]:
            return "proposals turned down"
        return "no valid proposal" if metrics["proposals"] else "never proposed"

    def offload(self) -> None:
        """Free the device memory of a partner that shares the policy's device."""
        if self._llm:
            self._llm.offload()

    def shy_partner(self, deal: Deal, player: int, rng: random.Random) -> Player:
        """Return the scripted partner for the side `player`. A subclass may return another player."""
        return ShyPartner(deal, player, rng)

    def _game(self, task: Task) -> MatchingGame:
        return MatchingGame(deal_of(task.data["game_state"], task.id), self.max_turns, self.max_errors)

    def _partner(self, game: MatchingGame, player: int, task: Task) -> Opponent:
        rng = random.Random(f"matching-game/{task.id}")
        return ScriptedPartner(game, player, self.shy_partner(game.deal, player, rng))

    def _episode(self, game: MatchingGame, player: int, other: Opponent) -> MatchingEpisode:
        return MatchingEpisode(game, player, other, self.last_turn_rule, self.notes)

    def _play(self, task: Task, game: MatchingGame, reply: Callable[[], str]) -> list[Message]:
        """Return the conversation of a script with the scripted partner, even if the policy is trained with another
        partner."""
        player = self.role - 1
        return converse(self._episode(game, player, self._partner(game, 1 - player, task)), reply)

    def _read(self, split: Split) -> list[Deal]:
        """Return the games of a split from the file `games`. Raise UserError if the file has no game of this split."""
        found = [deal for deal in self._own if split_of(deal) == split]
        if not found:
            raise UserError(
                f"matching-game: none of the {len(self._own)} games in {self.games} is of the split `{split}`. Make "
                f"some with `scripts/generate_data.py --split {split}`, or of both splits without it."
            )
        return found

    def _generate(self, split: Split) -> list[Deal]:
        """Generate the games of a split, all with different tables. `scripts/generate_data.py` generates the same games
        in the same order from `n` and `seed`. Raises UserError if too few games are found."""
        num = self.num_train if split == "train" else self.num_test
        # A split gets at least one deal in five, so 100 deals for each game are too few only if tables repeat.
        games: dict[Any, Deal] = {}
        for deal in islice(deals_of_seed(self.n, self.seed), 100 * num):
            if split_of(deal) == split:
                games.setdefault(deal.table, deal)
            if len(games) == num:
                break
        if len(games) < num:
            raise UserError(f"matching-game: found only {len(games)} games for `num_{split}` = {num}; lower it.")
        return [*games.values()]


def _own_turns(max_turns: int, player: int) -> int:
    return (max_turns + 1 - player) // 2
