"""The matching game with a partner that has nothing to tell: what `matching_listening.py` has a policy play besides.

uv run slimrl play benchmarks/learning/matching_mute.py:Mute --args.n 3
"""

import random

from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner


class MutePartner(ShyPartner):
    """Has nothing to tell."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        super().__init__(deal, player, rng)
        self._seen = {}


class Mute(MatchingTaskset):
    """The same games with the same partner, but for its answers."""

    def shy_partner(self, deal: Deal, player: int, rng: random.Random) -> MutePartner:
        return MutePartner(deal, player, rng)
