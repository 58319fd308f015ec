"""Chooses the replica that samples a prompt: the one that holds most of it in its cache, unless it has too much to do.

A replica computes what two prompts begin with once, and keeps a conversation between its turns, so sending the next
turn elsewhere costs the whole prompt. What a replica may hold is guessed from what it was sent, in blocks of tokens.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

BLOCK = 32  # tokens; less in common than one block is not worth a detour
MOST_BLOCKS = 1 << 16  # remembered of each replica: two million tokens
SLACK = 4  # requests that a replica may have more than the idlest, and a quarter of its own besides


class Router:
    """Remembers which prompts each replica was sent."""

    def __init__(self) -> None:
        self._sent: dict[str, OrderedDict[int, None]] = {}

    def choose(self, prompt: Sequence[int], num_open: Mapping[str, int]) -> str:
        """The name of the replica for a prompt, of those in `num_open`, which says how many requests each has."""
        blocks = _blocks(prompt)
        least = min(num_open.values())
        near = [name for name, num in num_open.items() if num <= least + SLACK + num // 4]
        chosen = min(near, key=lambda name: (-self._num_held(name, blocks), num_open[name]))
        sent = self._sent.setdefault(chosen, OrderedDict())
        for block in blocks:
            sent[block] = None
            sent.move_to_end(block)
        while len(sent) > MOST_BLOCKS:
            sent.popitem(last=False)
        return chosen

    def forget(self, name: str) -> None:
        """The replica is gone; another of its name has nothing of what it held."""
        self._sent.pop(name, None)

    def _num_held(self, name: str, blocks: Sequence[int]) -> int:
        """How many of the first blocks the replica was sent."""
        sent = self._sent.get(name, OrderedDict())
        return next((place for place, block in enumerate(blocks) if block not in sent), len(blocks))


def _blocks(prompt: Sequence[int]) -> list[int]:
    """A hash for each whole block of the prompt, which also covers all before it."""
    hashes, last = [], 0
    for end in range(BLOCK, len(prompt) + 1, BLOCK):
        last = hash((last, *prompt[end - BLOCK : end]))
        hashes.append(last)
    return hashes
