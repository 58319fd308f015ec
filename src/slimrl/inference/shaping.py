"""Changes the logits of sequences that ask for it, before their next token is drawn.

In this order, which is vLLM's: `bias` is added; logits of tokens in the prompt or the reply are divided by `repetition`
if positive, else multiplied by it; `frequency` times the number of occurrences in the reply is subtracted, and
`presence` once for each token that occurs there; tokens that the grammar does not allow get no probability.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from slimrl.inference.grammar import Grammar, Matcher, token_masks
from slimrl.models.device import to_device


@dataclass(frozen=True, slots=True)
class Shaping:
    """How the logits of a request are changed; by default they are not. `bias` has a number for each of its tokens."""

    frequency: float = 0.0
    presence: float = 0.0
    repetition: float = 1.0
    bias: tuple[tuple[int, float], ...] = ()
    grammar: Grammar | None = None


UNSHAPED = Shaping()


@dataclass(slots=True, eq=False)
class Shaper:
    """The shaping of one sequence, and what it depends on: the tokens so far, and the place in the grammar."""

    shaping: Shaping
    prompt: list[int]
    matcher: Matcher | None = None
    counts: Counter[int] = field(default_factory=Counter)  # of the tokens of the reply

    def __post_init__(self) -> None:
        if self.shaping.grammar is not None:
            self.matcher = self.shaping.grammar.begin()

    @property
    def is_complete(self) -> bool:
        """Whether the grammar allows nothing but the end."""
        return self.matcher is not None and self.matcher.is_complete

    @property
    def error(self) -> str:
        """The reason why the sequence cannot go on; empty if it can."""
        return self.matcher.error if self.matcher is not None else ""

    def accept(self, token: int) -> None:
        """Record a sampled token."""
        self.counts[token] += 1
        if self.matcher is not None:
            self.matcher.accept(token)

    def tokens_to_repeat_less(self) -> set[int]:
        """The tokens that the repetition penalty is for."""
        return {*self.prompt, *self.counts} if self.shaping.repetition != 1.0 else set()

    def penalties(self) -> dict[int, float]:
        """What the frequency and presence penalties subtract from each token."""
        frequency, presence = self.shaping.frequency, self.shaping.presence
        if not frequency and not presence:
            return {}
        return {token: frequency * count + presence for token, count in self.counts.items()}


def shape_logits(logits_NV: Tensor, shapers: Sequence[Shaper]) -> Tensor:
    """The changed logits, in float32: the steps between bfloat16's numbers are larger than many a penalty."""
    shaped_NV = logits_NV.float() if logits_NV.dtype != torch.float32 else logits_NV.clone()
    _change(shaped_NV, [dict(shaper.shaping.bias) for shaper in shapers], torch.add)
    factors = [dict.fromkeys(shaper.tokens_to_repeat_less(), shaper.shaping.repetition) for shaper in shapers]
    _change(shaped_NV, factors, lambda logits, factor: torch.where(logits > 0, logits / factor, logits * factor))
    # The penalties come before the mask: subtracting from what has no probability would change nothing.
    _change(shaped_NV, [shaper.penalties() for shaper in shapers], torch.sub)
    masked = [row for row, shaper in enumerate(shapers) if shaper.matcher is not None]
    if masked:
        matchers = [matcher for shaper in shapers if (matcher := shaper.matcher) is not None]
        allowed = token_masks(matchers, shaped_NV.shape[1], shaped_NV.device)
        rows = to_device(masked, torch.long, shaped_NV.device)
        # Sampling normalises what is left, so log-probabilities are those of the allowed tokens.
        shaped_NV[rows] = shaped_NV[rows].masked_fill(~allowed, -torch.inf)
    return shaped_NV


def _change(
    logits_NV: Tensor, values_of_rows: Sequence[dict[int, float]], change: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Replace the logits of each row's tokens by `change` of them and their values."""
    places = [(row, token, value) for row, values in enumerate(values_of_rows) for token, value in values.items()]
    if places:
        rows, tokens, values = zip(*places, strict=True)
        index = to_device([rows, tokens], torch.long, logits_NV.device)
        given = to_device(values, torch.float32, logits_NV.device)
        logits_NV[index[0], index[1]] = change(logits_NV[index[0], index[1]], given)
