"""Which replica a prompt goes to: the one that has seen it, unless that has too much to do."""

import random

import pytest

from slimrl_cluster.inference import routing
from slimrl_cluster.inference.routing import BLOCK, SLACK, Router

IDLE = {"a": 0, "b": 0}


def prompt(seed: int, num: int = 4 * BLOCK) -> list[int]:
    return [random.Random(seed).randrange(1000) for _ in range(num)]


@pytest.mark.parametrize(
    ("first", "second", "num_open", "is_same"),
    [
        (prompt(1), prompt(1), SLACK, True),  # the turns of a conversation
        (prompt(1), [*prompt(1), *prompt(2)], SLACK, True),
        (prompt(1), prompt(2), SLACK, False),
        (prompt(1), prompt(1), SLACK + 1 + SLACK // 4, False),  # it has too much to do
        (prompt(1, BLOCK - 1), prompt(1, BLOCK - 1), 1, False),  # less than a block is not worth a detour
        # A block counts only after the same beginning.
        ([*prompt(1, BLOCK), *prompt(2, BLOCK)], [*prompt(3, BLOCK), *prompt(2, BLOCK)], 1, False),
    ],
)
def test_a_prompt_goes_to_the_replica_that_holds_its_beginning(
    first: list[int], second: list[int], num_open: int, is_same: bool
) -> None:
    router = Router()
    chosen = router.choose(first, IDLE)
    assert (router.choose(second, IDLE | {chosen: num_open}) == chosen) == is_same


def test_of_two_replicas_the_one_that_holds_more_of_the_prompt_is_chosen() -> None:
    router, long = Router(), [*prompt(1), *prompt(2), *prompt(3)]
    short_at = router.choose(prompt(1), IDLE)
    long_at = "b" if short_at == "a" else "a"
    assert router.choose([*prompt(1), *prompt(2)], {long_at: 0}) == long_at
    assert router.choose(long, {short_at: 0, long_at: SLACK}) == long_at


def test_a_replica_that_is_gone_is_forgotten_with_what_it_held() -> None:
    router = Router()
    first = router.choose(prompt(1), IDLE)
    router.forget(first)
    router.forget("never there")
    assert router.choose(prompt(1), IDLE | {first: 1}) != first


def test_what_a_replica_was_sent_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MOST_BLOCKS", 8)
    router = Router()
    for seed in (1, 2, 3):  # four blocks each
        router.choose(prompt(seed), {"a": 0})
    assert router.choose(prompt(1), {"a": 1, "b": 0}) == "b"
    assert router.choose(prompt(3), {"a": 1, "b": 0}) == "a"
