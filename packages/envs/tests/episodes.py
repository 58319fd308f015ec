"""Plays an episode with given replies, for the tests of all environments."""

from collections.abc import Iterable

from slimrl.types import Environment, Message, Turn


async def play(episode: Environment, replies: Iterable[str]) -> tuple[list[Message], list[Turn]]:
    """Return the opening of an episode and its turns, up to the end of the replies or of the game."""
    try:
        opening, turns = await episode.start(), []
        for reply in replies:
            turns.append(await episode.step(reply))
            if turns[-1].done:
                break
        return opening, turns
    finally:
        await episode.close()
