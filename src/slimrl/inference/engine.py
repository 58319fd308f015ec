"""Continuous batching on the policy's own module: token ids in, token ids and log-probabilities out.

The engine runs in the caller's process and thread. `submit` queues a request, each `step` prefills what is new and then
samples one token for every running sequence, and finished sequences come back from `step`. It knows token ids, nothing
of text. It computes from the module's own parameters: publishing a new version is a number, a forgotten cache and, on a
CPU, weights brought into the order of the fast product again (`models/fused.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from slimrl.inference.cache import DecodePlan, PrefillPlan, SlotCache, Span
from slimrl.inference.sampling import sample_tokens
from slimrl.inference.scheduler import Request, Scheduler
from slimrl.models.fused import sampling_forward
from slimrl.types import SamplingParams

PREFILL_BUDGET = 4096


@dataclass(slots=True)
class EngineCounters:
    """Work done since the engine was made: tokens prefilled."""

    prefilled: int = 0


class Engine:
    """A module, a KV cache of `num_slots` sequences of at most `capacity` tokens, and a scheduler."""

    def __init__(self, module: nn.Module, stop_ids: frozenset[int], num_slots: int, capacity: int) -> None:
        self._forward = sampling_forward(module)
        self._stop_ids = stop_ids
        self._device = next(module.parameters()).device
        self._cache = SlotCache(num_slots, capacity)
        self._scheduler = Scheduler(self._cache, PREFILL_BUDGET)
        self.capacity = capacity
        self.version = 0
        self.counters = EngineCounters()

    @property
    def busy(self) -> bool:
        return bool(self._scheduler.waiting or self._scheduler.running)

    def submit(self, prompt: list[int], params: SamplingParams, finished: Callable[[list[int]], bool]) -> Request:
        """Queue a request. `prompt` must leave room in the slot for at least one sampled token."""
        assert len(prompt) < self.capacity, f"a prompt of {len(prompt)} tokens does not fit a slot of {self.capacity}"
        sequence = Request(prompt, params, finished)
        self._scheduler.waiting.append(sequence)
        return sequence

    def cancel(self, sequence: Request) -> None:
        """Forget a request that is waiting or running; its slot is free at once."""
        self._scheduler.release(sequence)

    def publish(self, version: int) -> None:
        """The module's weights are now `version`. Nothing computed before is reused."""
        assert not self.busy, "weights changed while sequences were running"
        self.version = version
        self._forward.refresh()
        self._cache.forget()

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Prefill all that is new, sample one token for every running sequence, return those that finished."""
        self._scheduler.admit()
        while spans := self._scheduler.prefill_spans():
            self._prefill(spans)
            self._scheduler.admit()
        sequences = self._scheduler.decoding()
        self._decode(sequences)
        done = [sequence for sequence in sequences if sequence.finish_reason]
        for sequence in done:
            self._scheduler.release(sequence)
        return done

    def _prefill(self, spans: list[Span]) -> None:
        running = self._scheduler.running
        token_ids = [token for span in spans for token in running[span.slot].tokens[span.start : span.end]]
        positions = [position for span in spans for position in range(span.start, span.end)]
        plan = PrefillPlan(self._cache, spans)
        self._forward.hidden(self._tensor(token_ids), self._tensor(positions), plan)
        self.counters.prefilled += len(token_ids)
        for span in spans:
            self._scheduler.record_computed(span.slot, span.end)

    def _decode(self, sequences: list[Request]) -> None:
        if not sequences:
            return
        slots = [s.slot for s in sequences]
        positions = [s.computed for s in sequences]
        plan = DecodePlan(self._cache, slots, positions, self._device)
        hidden_BD = self._forward.hidden(self._tensor([s.tokens[-1] for s in sequences]), self._tensor(positions), plan)
        logits_BV = self._forward.logits(hidden_BD)
        tokens_B, logprobs_B = sample_tokens(
            logits_BV, [s.params for s in sequences], [s.rng.random() for s in sequences]
        )
        for sequence, token, logprob in zip(sequences, tokens_B, logprobs_B, strict=True):
            self._scheduler.record_computed(sequence.slot, len(sequence.tokens))
            self._append(sequence, token, logprob)

    def _append(self, sequence: Request, token: int, logprob: float) -> None:
        sequence.tokens.append(token)
        sequence.logprobs.append(logprob)
        sequence.versions.append(self.version)
        sampled = len(sequence.logprobs)
        if token in self._stop_ids or sequence.finished(sequence.sampled):
            sequence.finish_reason = "stop"
        elif sampled == sequence.params.max_tokens or len(sequence.tokens) == self.capacity:
            sequence.finish_reason = "length"

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, device=self._device)
