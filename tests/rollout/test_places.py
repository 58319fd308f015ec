"""The places of episodes: each is given back once, however a game ends."""

import asyncio

import pytest

from slimrl.rollout import places
from slimrl.rollout.places import Places


def test_a_game_that_is_cancelled_gives_each_place_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_episode(tidies_s, context):
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(tidies_s)

    async def scenario() -> None:
        own = Places(4, 2)
        for begins_s in (0.0, 0.005):
            game = asyncio.create_task(own.play([0.0, 0.02], None))
            await asyncio.sleep(begins_s)
            game.cancel()
            with pytest.raises(asyncio.CancelledError):
                await game
            assert own._free._value == 4

    monkeypatch.setattr(places, "run_episode", run_episode)
    asyncio.run(scenario())
