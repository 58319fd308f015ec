"""How everything above asks for tokens: `Client.sample`. Knows nothing of who answers."""

from dataclasses import dataclass
from typing import Literal, Protocol

from slimrl.types import SamplingParams

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled token ids (the stop token included), with the log-probability and the weight version of each."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    finish_reason: FinishReason


class Client(Protocol):
    """Samples a continuation of token ids."""

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion: ...
