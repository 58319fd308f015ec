"""Decides which sequence gets which slot, and what each has yet to compute. Pure bookkeeping: no tensors, no text.

Every sequence is a list of token ids of which the first `computed` have their keys and values in its slot. Prefill
brings `computed` up to all but the last token; decoding feeds that last token and samples the next. A new sequence
takes over whatever prefix some slot already holds, and waits for one that is being computed: so a group's prompt, and
the conversation so far, are computed once.
"""

import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from slimrl.inference.cache import SlotCache, Span, shared_prefix
from slimrl.types import SamplingParams

FinishReason = Literal["stop", "length"]


@dataclass(slots=True, eq=False)
class Request:
    """A prompt to continue, and the sequence so far. `finished` is asked after each token whether the text calls for a
    stop. Equal to itself alone: two requests with the same tokens are two."""

    prompt: list[int]
    params: SamplingParams
    finished: Callable[[list[int]], bool]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    slot: int = -1
    computed: int = 0
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        assert self.prompt, "a request needs at least one prompt token"
        self.tokens = list(self.prompt)
        self.rng.seed(self.params.seed)

    @property
    def sampled(self) -> list[int]:
        return self.tokens[len(self.prompt) :]

    @property
    def ready(self) -> bool:
        """Only the last token is left to compute: the next forward samples."""
        return self.computed == len(self.tokens) - 1


class Scheduler:
    """Waiting and running sequences over the slots of one cache."""

    def __init__(self, cache: SlotCache, prefill_budget: int) -> None:
        self._cache = cache
        self._prefill_budget = prefill_budget
        self._clock = itertools.count()
        self._last_used = [next(self._clock) for _ in range(cache.num_slots)]
        self.waiting: deque[Request] = deque()
        self.running: dict[int, Request] = {}

    def admit(self) -> None:
        """Give free slots to waiting sequences, first come first served. One whose prompt shares more with a sequence
        still in prefill than with any finished slot stays in line until that prefill is done."""
        in_prefill = [s.prompt for s in self.running.values() if not s.ready]
        held_back: list[Request] = []
        while self.waiting and len(self.running) < self._cache.num_slots:
            sequence = self.waiting.popleft()
            source, length = self._longest_prefix(sequence.tokens[:-1])
            if any(shared_prefix(prompt, sequence.tokens[:-1]) > length for prompt in in_prefill):
                held_back.append(sequence)
                continue
            self._place(sequence, source, length)
            if not sequence.ready:
                in_prefill.append(sequence.prompt)
        self.waiting.extendleft(reversed(held_back))

    def prefill_spans(self) -> list[Span]:
        """The next tokens to prefill, by slot, at most the budget; empty when every sequence is ready."""
        spans, left = [], self._prefill_budget
        for slot, sequence in sorted(self.running.items()):
            if left > 0 and not sequence.ready:
                end = min(len(sequence.tokens) - 1, sequence.computed + left)
                spans.append(Span(slot, sequence.computed, end))
                left -= end - sequence.computed
        return spans

    def record_computed(self, slot: int, end: int) -> None:
        """The slot now holds the keys and values of the sequence's tokens up to `end`."""
        sequence = self.running[slot]
        self._cache.tokens[slot].extend(sequence.tokens[sequence.computed : end])
        sequence.computed = end

    def decoding(self) -> list[Request]:
        """Sequences whose next forward samples a token, by slot."""
        return [sequence for _, sequence in sorted(self.running.items()) if sequence.ready]

    def release(self, sequence: Request) -> None:
        """Take a sequence out, finished or not. Its slot keeps its content for whoever continues from it."""
        if sequence.slot < 0:
            self.waiting.remove(sequence)
        else:
            del self.running[sequence.slot]
            self._last_used[sequence.slot] = next(self._clock)

    def _longest_prefix(self, tokens: list[int]) -> tuple[int, int]:
        lengths = [shared_prefix(held, tokens) for held in self._cache.tokens]
        best = max(range(len(lengths)), key=lengths.__getitem__)
        return best, lengths[best]

    def _place(self, sequence: Request, source: int, length: int) -> None:
        free = [slot for slot in range(self._cache.num_slots) if slot not in self.running]
        continues = source in free and length == len(self._cache.tokens[source])
        empty = [slot for slot in free if not self._cache.tokens[slot]]
        slot = source if continues and length else (empty or sorted(free, key=self._last_used.__getitem__))[0]
        self._cache.copy_prefix(source, slot, length)
        sequence.slot, sequence.computed = slot, length
        self.running[slot] = sequence
