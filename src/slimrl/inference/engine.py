"""The inference engine: continuous batching on the policy's own module, from token ids to token ids.

The engine runs in the caller's process and thread. `submit` queues a request; each `step` prefills new prompts, samples
one token for every running sequence, and returns the finished sequences. Here is a two-turn conversation, where <e>
ends a turn and u is the user's answer:

    first = engine.submit([p, q, r], SamplingParams(max_tokens=8), lambda completion: False)
    engine.step()        prefills p q, feeds r, samples a; returns []
    engine.step()        feeds a, samples <e>; returns [first], and first.completion_ids == [a, <e>]
    engine.submit([p, q, r, a, <e>, u], ...)
    engine.step()        finds p q r a in the cache, prefills <e>, feeds u, samples b

The engine computes with the module's own parameters. `publish` sets a new version number, clears the cache's records
and, on a CPU, copies the weights again into the order of the fast kernels (`models/forward/tiled.py`). `publish` may be
called between any two steps. Running sequences keep their keys and values and continue with the new weights. Knows
nothing of text.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from slimrl.inference.cache import CachePlan, SlotCache, Span
from slimrl.inference.graphs import decode_graphs
from slimrl.inference.sampling import sample_tokens, score_tokens, top_tokens
from slimrl.inference.scheduler import PLAIN, Request, RequestOptions, Scheduler
from slimrl.models.device import memory_of, to_device
from slimrl.models.forward.tiled import sampling_forward
from slimrl.types import SamplingParams

PREFILL_BUDGET = 4096  # tokens in one forward
SCORED_ROWS = 128  # prompt tokens whose logits exist at once
UNBOUNDED = sys.maxsize
KEPT_SHARE = 0.1  # share of a GPU's memory up to which the cache is kept while the model trains


@dataclass(slots=True)
class EngineCounters:
    """The numbers of tokens since the engine's creation. `cached` counts tokens that were found in the cache."""

    prefilled: int = 0
    cached: int = 0
    sampled: int = 0


class Engine:
    """An engine that samples from `module`. It has a scheduler, and a KV cache for `num_slots` sequences of at most
    `capacity` tokens. `stop_ids` end every sequence."""

    def __init__(self, module: nn.Module, stop_ids: frozenset[int], num_slots: int, capacity: int) -> None:
        self._forward = sampling_forward(module)
        self._stop_ids = stop_ids
        self._device = next(module.parameters()).device
        self._cache = SlotCache(num_slots, capacity)
        self._graphs = decode_graphs(self._forward, self._cache, self._device)
        self._scheduler = Scheduler(self._cache)
        self.capacity = capacity
        self.version = 0
        self.counters = EngineCounters()

    @property
    def busy(self) -> bool:
        """True if any request is waiting or running."""
        return bool(self._scheduler.waiting or self._scheduler.running)

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        finished: Callable[[list[int]], bool],
        options: RequestOptions = PLAIN,
    ) -> Request:
        """Queue a request and return it. The engine fills the fields of the request while it samples.

        After each sampled token, `finished` is called with all sampled token ids, and returns True to stop the
        sequence. The prompt must leave room in the slot for at least one sampled token.
        """
        assert len(prompt) < self.capacity, f"a prompt of {len(prompt)} tokens does not fit a slot of {self.capacity}"
        stop_ids = options.stop_ids if options.ignore_eos else options.stop_ids | self._stop_ids
        sequence = Request(prompt, params, finished, options, stop_ids)
        self._scheduler.add(sequence)
        return sequence

    def cancel(self, sequence: Request) -> None:
        """Remove a waiting or running request. The slot of a running request is free at once."""
        self._scheduler.remove(sequence)

    def reserve(self) -> None:
        """Sample one token and discard it, so that the memory for requests is allocated now.

        Raises RuntimeError or MemoryError if the memory does not suffice, before the first request.
        """
        self.submit([0], SamplingParams(max_tokens=1), lambda sampled: False)
        while self.busy:
            self.step()
        self._scheduler.clear()
        self.counters = EngineCounters()

    def offload(self) -> None:
        """Free the copies of the weights and the KV cache, until the next step needs them.

        The trainer uses the memory in the meantime. While sequences run, the cache stays, because it holds their keys
        and values. A cache that takes a small part of a GPU's memory also stays, with its graphs, because recording
        graphs is slow.
        """
        if not self._scheduler.running and not is_kept(self._cache.bytes, memory_of(self._device)):
            # Drop graphs first: they contain addresses in the cache.
            if self._graphs is not None:
                self._graphs.clear()
            self._cache.offload()
        self._forward.offload()

    def publish(self, version: int) -> None:
        """Declare that the module's weights have changed and are now `version`.

        Running sequences keep their keys and values of older weights, and no other sequence reuses them. Every token
        records the version of the weights that sampled it. If an error is raised, the version stays unchanged.
        """
        self._scheduler.clear()
        self._forward.refresh()
        if self._graphs is not None:
            self._graphs.refresh()
        self.version = version

    @torch.inference_mode()
    def step(self, max_prefill: int = UNBOUNDED) -> list[Request]:
        """Prefill new prompts, sample one token for every ready sequence, and return the finished sequences.

        At most `max_prefill` tokens are prefilled, so that a long prompt does not block the other sequences.
        """
        self.counters.cached += self._scheduler.admit()
        while max_prefill > 0 and (spans := self._scheduler.prefill_spans(min(max_prefill, PREFILL_BUDGET))):
            max_prefill -= self._prefill(spans)
            # Admit the sequences that waited for a prefix that is computed now.
            self.counters.cached += self._scheduler.admit()
        # Includes sequences whose prefill is just done; others may still be in prefill if the budget was too small.
        sequences = self._scheduler.decode_batch()
        if sequences:
            self._decode(sequences)
        done = [sequence for sequence in sequences if sequence.finish_reason]
        for sequence in done:
            self._scheduler.remove(sequence)
        return done

    def _prefill(self, spans: list[Span]) -> int:
        running = self._scheduler.running
        hidden_TD = self._compute(spans, [running[span.slot].tokens[span.start : span.end] for span in spans])
        self.counters.prefilled += len(hidden_TD)
        # No logits are needed here: the next decode feeds each prompt's last token and samples after it.
        offset = 0
        for span in spans:
            rows = slice(offset, offset + span.end - span.start)
            if running[span.slot].options.prompt_logprobs >= 0:
                self._score_prompt(running[span.slot], span, hidden_TD[rows])
            self._scheduler.record_computed(span.slot, span.end)
            offset = rows.stop
        return len(hidden_TD)

    def _compute(self, spans: list[Span], tokens: list[list[int]]) -> torch.Tensor:
        """Compute the spans' tokens. Return the last hidden states (T, D)."""
        token_ids = [token for part in tokens for token in part]
        positions = [position for span in spans for position in range(span.start, span.end)]
        plan = CachePlan(self._cache, spans, self._device)
        return self._forward.last_hidden(self._tensor(token_ids), self._tensor(positions), plan)

    def _score_prompt(self, sequence: Request, span: Span, hidden_TD: torch.Tensor) -> None:
        """Score the prompt's tokens that follow the tokens of the span. Work in chunks, so that the logits (T, V) of
        the whole span never exist at once."""
        for start in range(span.start, span.end, SCORED_ROWS):
            end = min(start + SCORED_ROWS, span.end)
            logits_NV = self._forward.logits(hidden_TD[start - span.start : end - span.start])
            targets_N = self._tensor(sequence.tokens[start + 1 : end + 1])
            sequence.scored += score_tokens(logits_NV, targets_N, sequence.options.prompt_logprobs)

    def _decode(self, sequences: list[Request]) -> None:
        """Feed the last token of every sequence, and sample the next one."""
        logits_BV = self._next_logits(sequences)
        for sequence, (token, logprob) in zip(sequences, self._draw(logits_BV, sequences), strict=True):
            # The fed token's keys and values are in the slot now; the new token's are not yet.
            self._scheduler.record_computed(sequence.slot, len(sequence.tokens))
            self._append(sequence, token, logprob)
        self.counters.sampled += len(sequences)

    def _next_logits(self, sequences: list[Request]) -> torch.Tensor:
        """Return the logits (B, V) after the last token of each sequence."""
        if self._graphs is not None:
            return self._graphs.logits([(s.slot, s.tokens[-1], s.computed) for s in sequences])
        spans = [Span(s.slot, s.computed, s.computed + 1) for s in sequences]
        return self._forward.logits(self._compute(spans, [s.tokens[-1:] for s in sequences]))

    def _draw(self, logits_BV: torch.Tensor, sequences: list[Request]) -> list[tuple[int, float]]:
        uniforms = [sequence.rng.random() for sequence in sequences]
        found = sample_tokens(logits_BV, [sequence.params for sequence in sequences], uniforms)
        _keep_top(logits_BV, sequences)  # after sampling, which does not change the logits
        return list(zip(*found, strict=True))

    def _append(self, sequence: Request, token: int, logprob: float) -> None:
        """Append a sampled token. Set the finish reason if this token is the last one."""
        # Append to `versions` last: another thread reads only the first `len(versions)` entries of the other lists.
        sequence.tokens.append(token)
        sequence.logprobs.append(logprob)
        sequence.versions.append(self.version)
        if token in sequence.stop_ids or sequence.finished(sequence.completion_ids):
            sequence.finish_reason = "stop"
        elif len(sequence.logprobs) == sequence.params.max_tokens or len(sequence.tokens) == self.capacity:
            sequence.finish_reason = "length"

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return to_device(values, torch.long, self._device)


def is_kept(cache_bytes: int, device_bytes: int) -> bool:
    """Return True if a cache of this size stays allocated while the model trains. `device_bytes` is a GPU's memory, 0
    for a CPU."""
    return cache_bytes <= KEPT_SHARE * device_bytes


def _keep_top(logits_BV: torch.Tensor, sequences: list[Request]) -> None:
    rows = [row for row, sequence in enumerate(sequences) if sequence.options.top_logprobs]
    if not rows:
        return
    wanted = [sequences[row] for row in rows]
    num = max(sequence.options.top_logprobs for sequence in wanted)
    logits_NV = logits_BV[to_device(rows, torch.long, logits_BV.device)]
    for sequence, top in zip(wanted, top_tokens(logits_NV, [s.params for s in wanted], num), strict=True):
        sequence.top.append(top[: sequence.options.top_logprobs])
