"""Chooses the replica that samples a prompt: the replica with the longest cached prefix, unless it is too busy.

A replica that has a prefix of the prompt in its cache need not compute the prefix again. The router does not see the
caches: it estimates them, in blocks of tokens, from the prompts that each replica was sent.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

BLOCK = 32  # tokens; shorter common prefixes are ignored
MOST_BLOCKS = 1 << 16  # blocks that are remembered per replica: two million tokens
SLACK = 4  # a replica with `num` open requests is too busy if num > minimum + SLACK + num // 4


class Router:
    """Chooses replicas, and remembers the prompts that each replica was sent."""

    def __init__(self) -> None:
        self._sent: dict[str, OrderedDict[int, None]] = {}

    def choose(self, prompt: Sequence[int], num_open: Mapping[str, int]) -> str:
        """Return the name of the replica for a prompt. `num_open` maps the name of each replica to its number of open
        requests."""
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
        """Forget a replica that has left. A new replica with the same name starts with an empty cache."""
        self._sent.pop(name, None)

    def _num_held(self, name: str, blocks: Sequence[int]) -> int:
        sent = self._sent.get(name, OrderedDict())
        return next((place for place, block in enumerate(blocks) if block not in sent), len(blocks))


def _blocks(prompt: Sequence[int]) -> list[int]:
    """Return a hash for each full block of the prompt. Each hash also covers all earlier blocks."""
    hashes, last = [], 0
    for end in range(BLOCK, len(prompt) + 1, BLOCK):
        last = hash((last, *prompt[end - BLOCK : end]))
        hashes.append(last)
    return hashes
