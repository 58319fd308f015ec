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


@pytest.mark.slow
def test_whatever_comes_load_stays_even_and_the_longest_match_is_taken_where_it_may() -> None:
    rng = random.Random(0)
    for _ in range(8):
        router, num_open = Router(), dict.fromkeys("abcd"[: rng.randrange(1, 5)], 0)
        sent: dict[str, list[list[int]]] = {name: [] for name in num_open}
        for _ in range(80):
            asked = [*prompt(rng.randrange(4), 3 * BLOCK), *prompt(rng.randrange(8), rng.randrange(3 * BLOCK))]
            chosen = router.choose(asked, num_open)
            least = min(num_open.values())
            may = [name for name, num in num_open.items() if num <= least + SLACK + num // 4]
            assert chosen in may
            assert _held(sent[chosen], asked) == max(_held(sent[name], asked) for name in may)
            sent[chosen].append(asked)
            num_open[chosen] += 1
            for name in num_open:  # some of what is open ends
                num_open[name] -= rng.randrange(num_open[name] + 1) if rng.random() < 0.2 else 0


def _held(sent: list[list[int]], asked: list[int]) -> int:
    """How many whole blocks the prompt begins with that one of those sent begins with too."""
    most = 0
    for one in sent:
        same = next((place for place, (x, y) in enumerate(zip(one, asked, strict=False)) if x != y), None)
        most = max(most, (min(len(one), len(asked)) if same is None else same) // BLOCK)
    return most
