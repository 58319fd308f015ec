"""Changes the logits of sequences that request it, before their next token is drawn.

The steps have vLLM's order. First, `bias` is added. Then, for each token in the prompt or the reply, a positive logit
is divided by `repetition`, and any other logit is multiplied by `repetition`. For each token in the reply, `presence`
is subtracted once, and `frequency` once per occurrence. At the end, tokens that the grammar forbids become impossible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from slimrl.models.device import to_device
from slimrl_serve.grammar import Grammar, one_line, token_masks


@dataclass(frozen=True, slots=True)
class Shaping:
    """The changes to the logits of a request; none by default. `bias` has pairs of a token and a number. A grammar ends
    a sequence with the engine's own stop tokens, so it cannot be combined with `ignore_eos` or `min_tokens`."""

    frequency: float = 0.0
    presence: float = 0.0
    repetition: float = 1.0
    bias: tuple[tuple[int, float], ...] = ()
    grammar: Grammar | None = None


UNSHAPED = Shaping()


@dataclass(slots=True, eq=False)
class Shaper:
    """The shaping of one sequence, and its inputs: the tokens so far, and the state in the grammar.

    Tokens are counted on the logits' device, because converting a long prompt for each new token would cost more than
    decoding. `uncounted` are the reply's tokens since the last count.
    """

    shaping: Shaping
    prompt: list[int]
    matcher: Grammar | None = None
    uncounted: list[int] = field(default_factory=list)
    _counts: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        if self.shaping.grammar is not None:
            self.matcher = self.shaping.grammar.deep_copy()

    @property
    def depends_on_tokens(self) -> bool:
        """True if a penalty depends on the tokens so far."""
        return self.shaping.repetition != 1.0 or self.shaping.frequency != 0.0 or self.shaping.presence != 0.0

    @property
    def is_complete(self) -> bool:
        """True if the grammar allows only the end."""
        return self.matcher is not None and bool(self.matcher.is_stopped())

    @property
    def error(self) -> str:
        """The reason why the sequence cannot continue; an empty text if it can."""
        return one_line(self.matcher.get_error()) if self.matcher is not None else ""

    def accept(self, token: int) -> None:
        """Record a sampled token."""
        if self.depends_on_tokens:
            self.uncounted.append(token)
        if self.matcher is not None:
            self.matcher.consume_token(token)  # the token mask has allowed it

    def counts(self, num_tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return two tensors `[num_tokens]`: the number of occurrences of each token in the reply, and True for each
        token that occurs in the reply or the prompt."""
        if self._counts is None:
            self._counts = torch.zeros(num_tokens, device=device), torch.zeros(num_tokens, device=device).bool()
            self._counts[1][to_device(self.prompt, torch.long, device)] = True
        counts_V, seen_V = self._counts
        if self.uncounted:
            tokens = to_device(self.uncounted, torch.long, device)
            counts_V.index_add_(0, tokens, torch.ones(len(self.uncounted), device=device))
            seen_V[tokens] = True
            self.uncounted.clear()
        return counts_V, seen_V

    def shape(self, logits_NV: Tensor, shapers: Sequence["Shaper"]) -> Tensor:
        """Return the changed logits of several sequences in float32, because many penalties are smaller than the
        precision of bfloat16."""
        shaped_NV = logits_NV.float() if logits_NV.dtype != torch.float32 else logits_NV.clone()
        _add_biases(shaped_NV, shapers)
        # Apply the penalties before the mask: subtracting from -inf would change nothing.
        _apply_penalties(shaped_NV, shapers)
        matchers = {row: shaper.matcher for row, shaper in enumerate(shapers) if shaper.matcher is not None}
        if matchers:
            allowed = token_masks([*matchers.values()], shaped_NV.shape[1], shaped_NV.device)
            rows = to_device([*matchers], torch.long, shaped_NV.device)
            # Sampling normalises the rest, so log-probabilities refer to the allowed tokens.
            shaped_NV[rows] = shaped_NV[rows].masked_fill(~allowed, -torch.inf)
        return shaped_NV


def _add_biases(logits_NV: Tensor, shapers: Sequence[Shaper]) -> None:
    places = [(row, token, bias) for row, shaper in enumerate(shapers) for token, bias in shaper.shaping.bias]
    if places:
        rows, tokens, biases = zip(*places, strict=True)
        index = to_device([rows, tokens], torch.long, logits_NV.device)
        logits_NV[index[0], index[1]] += to_device(biases, torch.float32, logits_NV.device)


def _apply_penalties(logits_NV: Tensor, shapers: Sequence[Shaper]) -> None:
    rows = [row for row, shaper in enumerate(shapers) if shaper.depends_on_tokens]
    if not rows:
        return
    device = logits_NV.device
    counts, seen = zip(*(shapers[row].counts(logits_NV.shape[1], device) for row in rows), strict=True)
    penalties = [(s.repetition, s.frequency, s.presence) for s in (shapers[row].shaping for row in rows)]
    repetition_P1, frequency_P1, presence_P1 = to_device(penalties, torch.float32, device).T.unsqueeze(-1)
    index, counts_PV = to_device(rows, torch.long, device), torch.stack(counts)
    chosen_PV = logits_NV[index]
    divided_PV = torch.where(chosen_PV > 0, chosen_PV / repetition_P1, chosen_PV * repetition_P1)
    chosen_PV = torch.where(torch.stack(seen), divided_PV, chosen_PV)
    logits_NV[index] = chosen_PV - frequency_P1 * counts_PV - presence_P1 * (counts_PV > 0)
