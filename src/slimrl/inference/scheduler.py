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

from slimrl.inference.cache import SlotCache, Span, common_prefix_length
from slimrl.inference.client import FinishReason
from slimrl.inference.lookup import Lookup
from slimrl.inference.sampling import ScoredToken, Top
from slimrl.types import SamplingParams


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What few requests ask for, beyond `SamplingParams`; whoever does not ask does not pay.

    `stop_ids` end the sequence besides the engine's own, which `ignore_eos` switches off; before `min_tokens` neither
    kind can be drawn and no text ends it. `top_logprobs` keeps that many of the likeliest tokens beside each sampled
    one. `prompt_logprobs` >= 0 scores the prompt, with that many likeliest tokens; -1 does not. A prompt that is scored
    is computed whole, whatever the cache holds.
    """

    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    min_tokens: int = 0
    top_logprobs: int = 0
    prompt_logprobs: int = -1

    def __post_init__(self) -> None:
        assert self.min_tokens >= 0 and self.top_logprobs >= 0 and self.prompt_logprobs >= -1, self


PLAIN = RequestOptions()


@dataclass(slots=True, eq=False)
class Request:
    """A prompt to continue, and the sequence so far. `finished` is asked after each token whether the text calls for a
    stop. Equal to itself alone: two requests with the same tokens are two.

    Per sampled token: `logprobs`, `top` if asked for, and last `versions`, so that another thread may read as many of
    each as there are versions. `scored` has the prompt's tokens after the first, if asked for. `held` is the cache's
    record of the slot; `cached` says how much of the prompt came from the cache; `lookup` guesses its next tokens.
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
    lookup: Lookup | None = None
    rng: random.Random = field(default_factory=random.Random)
    _drawn: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.prompt, "a request needs at least one prompt token"
        self.tokens = list(self.prompt)
        self.rng.seed(self.params.seed)

    def uniforms(self, num: int) -> list[float]:
        """The numbers in [0, 1) that decide the next `num` tokens: the n-th token of a seed always has the same one."""
        sampled = len(self.logprobs)
        while len(self._drawn) < sampled + num:
            self._drawn.append(self.rng.random())
        return self._drawn[sampled : sampled + num]

    @property
    def completion_ids(self) -> list[int]:
        return self.tokens[len(self.prompt) :]

    @property
    def ready(self) -> bool:
        """Only the last token is left to compute: the next forward samples."""
        return self.computed == len(self.tokens) - 1

    @property
    def needs_logits(self) -> bool:
        """Whether a step that samples for this sequence must do more than sample, one token at a time."""
        return self.options.top_logprobs > 0 or self.options.min_tokens > 0


class Scheduler:
    """Waiting and running sequences over the slots of one cache. `num_needing_logits` of them want more than tokens."""

    def __init__(self, cache: SlotCache) -> None:
        self._cache = cache
        self._clock = itertools.count()
        self._last_used = [next(self._clock) for _ in range(cache.num_slots)]
        self.waiting: deque[Request] = deque()
        self.running: dict[int, Request] = {}
        self.num_needing_logits = 0

    def add(self, sequence: Request) -> None:
        """Queue a sequence behind those that wait."""
        self.waiting.append(sequence)
        self.num_needing_logits += sequence.needs_logits

    def admit(self) -> int:
        """Give free slots to waiting sequences, first come first served. One whose prompt shares more with a sequence
        still in prefill than with any finished slot stays in line until that prefill is done.

        Returns how many prompt tokens need no prefill, because a slot holds them."""
        in_prefill = [s.prompt for s in self.running.values() if not s.ready and self._reusable(s)]
        held_back: list[Request] = []
        num_cached = 0
        try:
            while self.waiting and len(self.running) < self._cache.num_slots:
                sequence = self.waiting[0]
                source, length = self._source(sequence)
                to_compute = sequence.tokens[:-1]
                if source >= 0 and any(common_prefix_length(prompt, to_compute) > length for prompt in in_prefill):
                    held_back.append(self.waiting.popleft())
                    continue
                self._place(sequence, source, length)
                self.waiting.popleft()
                num_cached += length
                if not sequence.ready:
                    in_prefill.append(sequence.prompt)
        finally:  # also where copying a prefix fails: whoever cancels a sequence must find it
            self.waiting.extendleft(reversed(held_back))
        return num_cached

    def prefill_spans(self, budget: int) -> list[Span]:
        """The next tokens to prefill, at most the budget, in order of admission; empty when every sequence is ready.

        By slot, whoever is given a low one again and again would starve a long prompt in a high one."""
        spans, left = [], budget
        for slot, sequence in self.running.items():
            if left > 0 and not sequence.ready:
                end = min(len(sequence.tokens) - 1, sequence.computed + left)
                spans.append(Span(slot, sequence.computed, end))
                left -= end - sequence.computed
        return spans

    def record_computed(self, slot: int, end: int) -> None:
        """The slot now holds the keys and values of the sequence's tokens up to `end`."""
        sequence = self.running[slot]
        sequence.held.extend(sequence.tokens[sequence.computed : end])
        sequence.computed = end

    def decode_batch(self) -> list[Request]:
        """Sequences whose next forward samples a token, by slot."""
        return [sequence for _, sequence in sorted(self.running.items()) if sequence.ready]

    def remove(self, sequence: Request) -> None:
        """Take a sequence out, finished or not. Its slot keeps its content for whoever continues from it."""
        self.num_needing_logits -= sequence.needs_logits
        if sequence.slot < 0:
            self.waiting.remove(sequence)
        else:
            del self.running[sequence.slot]
            self._last_used[sequence.slot] = next(self._clock)

    def clear(self) -> None:
        """The weights have changed. No slot is a source of prefixes any more, and running sequences go on with what
        they have: the cache starts new records, so theirs, `Request.held`, is one that nobody reads."""
        self._cache.clear()

    def _reusable(self, sequence: Request) -> bool:
        return sequence.held is self._cache.tokens[sequence.slot]

    def _source(self, sequence: Request) -> tuple[int, int]:
        """The slot that holds the longest prefix, and its length; slot -1 for a prompt that must be computed whole."""
        if sequence.options.prompt_logprobs >= 0:
            return -1, 0
        tokens = sequence.tokens[:-1]
        lengths = [common_prefix_length(held, tokens) for held in self._cache.tokens]
        best = max(range(len(lengths)), key=lengths.__getitem__)
        return best, lengths[best]

    def _place(self, sequence: Request, source: int, length: int) -> None:
        free = [slot for slot in range(self._cache.num_slots) if slot not in self.running]
        continues = length > 0 and source in free and length == len(self._cache.tokens[source])
        empty = [slot for slot in free if not self._cache.tokens[slot]]
        slot = source if continues else (empty or sorted(free, key=self._last_used.__getitem__))[0]
        self._cache.copy_prefix(source if length else slot, slot, length)
        sequence.slot, sequence.computed, sequence.cached = slot, length, length
        sequence.held = self._cache.tokens[slot]
        self.running[slot] = sequence
