"""Episodes, speeds and recipes for the model of the pipeline, with round numbers."""

import random

from slimrl_tools.plan.episodes import Episode, EpisodeGroup, RecordedEpisodes, Turn
from slimrl_tools.plan.replica import Costs, Recipe
from slimrl_tools.plan.simulate import Placement
from slimrl_tools.plan.timing import Speeds
from slimrl_tools.plan.workload import Row

GROUP = 4
# A decoding step takes 0.1 s however many decode, and a training step 1 s for each 100 tokens.
SPEEDS = Speeds(decode_step=0.1, decode_row=0.0, prefill=0.0, train=0.01, update=0.0, source="made up")
COSTS = Costs(SPEEDS)
RECIPE = Recipe(batch_size=16, group_size=GROUP, resample_factor=3, pack_tokens=100)
START = Turn(0, 0, 0.0)
ALONE = Placement("one-process", slots=64)


def group(lengths: list[int], env_s: float = 0.0, has_signal: bool = True, tokens: int = 25) -> EpisodeGroup:
    """Episodes of one turn on a prompt that takes no time, which train so many tokens."""
    episodes = tuple((START, Turn(0, length, env_s)) for length in lengths)
    return EpisodeGroup(episodes, Row(tokens, tokens, 0), has_signal)


def equal(length: int = 10, env_s: float = 0.0) -> RecordedEpisodes:
    """Episodes without variance."""
    return RecordedEpisodes((group([length] * GROUP, env_s),), "made up")


def uneven(seed: int = 0, useless: float = 0.2, num: int = 40) -> RecordedEpisodes:
    """Episodes of one to three turns with lengths and waits that differ much."""
    rng = random.Random(seed)

    def episode() -> Episode:
        turns = (
            Turn(rng.randrange(5, 40), rng.randrange(1, 60), rng.choice([0.0, 0.1, 3.0]))
            for _ in range(rng.randint(1, 3))
        )
        return Turn(0, 0, rng.choice([0.0, 0.5])), *turns

    groups = (
        EpisodeGroup(tuple(episode() for _ in range(GROUP)), Row(300, 100, 9000), rng.random() >= useless)
        for _ in range(num)
    )
    return RecordedEpisodes(tuple(groups), "made up")
