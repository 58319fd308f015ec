"""The matching game with a partner that has nothing to tell: what `matching_listening.py` has a policy play besides.

uv run slimrl play benchmarks/matching_mute.py:Mute --args.n 3
"""

import random

from slimrl.environments.matching_game import MatchingTaskset
from slimrl.environments.matching_others import Asked, Scripted
from slimrl.games.matching.deal import Deal
from slimrl.games.matching.game import MatchingGame
from slimrl.games.matching.shy import ShyPartner
from slimrl.types import Task


class MutePartner(ShyPartner):
    """Has nothing to tell."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        super().__init__(deal, player, rng)
        self._seen = ((None,) * deal.size,) * deal.size


class Mute(MatchingTaskset):
    """The same games with the same partner, but for its answers."""

    def _partner(self, game: MatchingGame, player: int, task: Task, scripted: bool = False) -> Asked:
        rng = random.Random(f"matching-game/{task.id}")
        return Asked(game, player, Scripted(MutePartner(game.deal, player, rng)))
