"""Schedules sequences: chooses the slot of each, and the tokens to compute next. Uses no tensors and no text.

A sequence is a list of token ids. Its slot holds the keys and values of the first `computed` tokens. Prefill raises
`computed` to all but the last token; decoding feeds that last token and samples the next one. A new sequence reuses the
longest prefix that any slot holds. If a longer prefix is being prefilled, the sequence waits for it. So a group's
prompt, and the conversation so far, are computed once.

An example with two slots: samples 1 and 2 of the prompt p q r, and then turn two of sample 1, p q r a <e> u:

    admit          1 gets slot 0; 2 waits, because 1 is about to compute the prefix p q
    prefill        1: p q                            computed = 2, so 1 is ready
    admit          2 gets slot 1 with p q copied     computed = 2, ready without prefill
    decode         both feed r and sample: a, b      computed = 3
    decode         1 feeds a and samples <e>         computed = 4, finished; slot 0 keeps p q r a
    admit          turn two gets slot 0 in place     computed = 4
    prefill        turn two: <e>                     computed = 5, ready: decoding feeds u
"""

import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from slimrl.inference.cache import SlotCache, Span
from slimrl.inference.client import FinishReason
from slimrl.inference.sampling import ScoredToken, Top
from slimrl.models.prefix import common_prefix_length
from slimrl.types import SamplingParams


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Rare options of a request, beyond `SamplingParams`. Options at their defaults cost nothing.

    `stop_ids` end the sequence in addition to the engine's stop tokens, which `ignore_eos` disables. `top_logprobs` is
    the number of likeliest tokens to record with each sampled token. `prompt_logprobs` is the number of likeliest
    tokens to record with each prompt token; with -1, the prompt is not scored. A scored prompt is always computed
    completely, without the cache.
    """

    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    top_logprobs: int = 0
    prompt_logprobs: int = -1


PLAIN = RequestOptions()


@dataclass(slots=True, eq=False)
class Request:
    """A prompt to continue, and the sequence so far. Requests are compared by identity.

    `finished` is called after each sampled token (`Engine.submit`). `logprobs`, `top` (if requested) and `versions`
    have one entry per sampled token. `versions` is appended to last, so another thread may read the first
    `len(versions)` entries of each list. `scored` are the scores of the prompt's tokens after the first, if requested.
    The scheduler sets `computed` and `slot`. `held` is the cache's record of the slot. `cached` is the number of prompt
    tokens that were found in the cache. `rng` gives one number for each sampled token.
    """

    prompt: list[int]
    params: SamplingParams
    finished: Callable[[list[int]], bool]
    options: RequestOptions = PLAIN
    stop_ids: frozenset[int] = frozenset()
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[Top] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    scored: list[ScoredToken] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    slot: int = -1
    computed: int = 0
    cached: int = 0
    held: list[int] = field(default_factory=list)
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        assert self.prompt, "a request needs at least one prompt token"
        self.tokens = list(self.prompt)  # prompt and sampled tokens
        self.rng.seed(self.params.seed)

    @property
    def completion_ids(self) -> list[int]:
        """The token ids sampled so far."""
        return self.tokens[len(self.prompt) :]

    @property
    def ready(self) -> bool:
        """True if only the last token is left to compute, so that the next forward samples."""
        return self.computed == len(self.tokens) - 1


class Scheduler:
    """The waiting and running sequences that share one cache."""

    def __init__(self, cache: SlotCache) -> None:
        self._cache = cache
        self._clock = itertools.count()
        self._last_used = [next(self._clock) for _ in range(cache.num_slots)]
        self.waiting: deque[Request] = deque()
        self.running: dict[int, Request] = {}

    def add(self, sequence: Request) -> None:
        """Append a sequence to the queue."""
        self.waiting.append(sequence)

    def admit(self) -> int:
        """Give free slots to waiting sequences in order of arrival. Return the number of prompt tokens found in the
        cache.

        A waiting sequence may share a longer prefix with a sequence in prefill than with any slot's record. Then it
        stays in the queue until that prefill is done, and later sequences may overtake it.
        """
        # After an update of the weights, a running sequence is no longer a source of prefixes.
        in_prefill = [s.prompt for s in self.running.values() if not s.ready and self._reusable(s)]
        held_back: list[Request] = []
        num_cached = 0
        try:
            while self.waiting and len(self.running) < self._cache.num_slots:
                sequence = self.waiting[0]
                source, length = self._source(sequence)
                # Decoding always feeds the last prompt token, so it is not part of a prefix.
                to_compute = sequence.tokens[:-1]
                if source >= 0 and any(common_prefix_length(prompt, to_compute) > length for prompt in in_prefill):
                    held_back.append(self.waiting.popleft())
                    continue
                self._place(sequence, source, length)
                self.waiting.popleft()
                num_cached += length
                if not sequence.ready:
                    in_prefill.append(sequence.prompt)
        finally:  # even if copying a prefix fails, so that a failed sequence can be cancelled
            self.waiting.extendleft(reversed(held_back))
        return num_cached

    def prefill_spans(self, budget: int) -> list[Span]:
        """Return the next tokens to prefill, at most `budget`, in order of admission; empty if all sequences are ready.

        The order of slot numbers would be unfair: new sequences in low slots would repeatedly overtake a long prompt in
        a high slot.
        """
        spans, left = [], budget
        for slot, sequence in self.running.items():
            if left > 0 and not sequence.ready:
                end = min(len(sequence.tokens) - 1, sequence.computed + left)
                spans.append(Span(slot, sequence.computed, end))
                left -= end - sequence.computed
        return spans

    def record_computed(self, slot: int, end: int) -> None:
        """Record that the slot now holds the keys and values of its sequence's tokens up to `end`."""
        sequence = self.running[slot]
        sequence.held.extend(sequence.tokens[sequence.computed : end])
        sequence.computed = end

    def decode_batch(self) -> list[Request]:
        """Return the sequences whose next forward samples a token, in the order of their slots."""
        return [sequence for _, sequence in sorted(self.running.items()) if sequence.ready]

    def remove(self, sequence: Request) -> None:
        """Remove a sequence, finished or unfinished. Its slot keeps the keys and values for later requests with the
        same prefix."""
        if sequence.slot < 0:
            self.waiting.remove(sequence)
        else:
            del self.running[sequence.slot]
            self._last_used[sequence.slot] = next(self._clock)

    def clear(self) -> None:
        """Stop using the slots as sources of prefixes, because the weights have changed.

        Running sequences continue with their keys and values. Each extends its old record, `Request.held`, while the
        cache has a new, empty record for its slot. So other sequences never reuse keys and values of old weights.
        """
        self._cache.clear()

    def _reusable(self, sequence: Request) -> bool:
        """Return True if a running sequence was computed with the current weights alone."""
        return sequence.held is self._cache.tokens[sequence.slot]

    def _source(self, sequence: Request) -> tuple[int, int]:
        """Return the slot that holds the longest prefix of the sequence, and the prefix's length. Return slot -1 if the
        whole prompt must be computed."""
        if sequence.options.prompt_logprobs >= 0:
            return -1, 0
        tokens = sequence.tokens[:-1]
        lengths = [common_prefix_length(held, tokens) for held in self._cache.tokens]
        best = max(range(len(lengths)), key=lengths.__getitem__)
        return best, lengths[best]

    def _place(self, sequence: Request, source: int, length: int) -> None:
        # Continue in place only if the slot's whole record is the prefix. Other requests may want a longer record: the
        # second sample of a group must not truncate the first one's conversation.
        free = [slot for slot in range(self._cache.num_slots) if slot not in self.running]
        continues = length > 0 and source in free and length == len(self._cache.tokens[source])
        # Otherwise use an empty slot, or the least recently used one.
        empty = [slot for slot in free if not self._cache.tokens[slot]]
        slot = source if continues else (empty or sorted(free, key=self._last_used.__getitem__))[0]
        self._cache.copy_prefix(source if length else slot, slot, length)
        sequence.slot, sequence.computed, sequence.cached = slot, length, length
        sequence.held = self._cache.tokens[slot]
        self.running[slot] = sequence
