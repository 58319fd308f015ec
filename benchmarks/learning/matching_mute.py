"""The matching game with a partner that has nothing to tell: what `matching_listening.py` has a policy play besides.

uv run slimrl play benchmarks/learning/matching_mute.py:Mute --args.n 3
"""

import random

from slimrl.types import Task
from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.opponents import ScriptedPartner
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import MatchingGame
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner


class MutePartner(ShyPartner):
    """Has nothing to tell."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        super().__init__(deal, player, rng)
        self._seen = ((None,) * deal.size,) * deal.size


class Mute(MatchingTaskset):
    """The same games with the same partner, but for its answers."""

    def _partner(self, game: MatchingGame, player: int, task: Task, scripted: bool = False) -> ScriptedPartner:
        rng = random.Random(f"matching-game/{task.id}")
        return ScriptedPartner(game, player, MutePartner(game.deal, player, rng))
