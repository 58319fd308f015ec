"""Defines the interface for sampling, `Client.sample`, which rollouts use. Knows nothing of its implementations."""

from dataclasses import dataclass
from typing import Literal, Protocol

from slimrl.types import SamplingParams

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Completion:
    """The sampled token ids (with the stop token), and the log-probability and weight version of each.

    For example token_ids (42, 2), logprobs (-0.7, -0.1), versions (3, 4): the weights were updated in between.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    finish_reason: FinishReason


class Client(Protocol):
    """Samples continuations of token ids: `LocalClient`, `RemoteClient`, and fakes in tests."""

    @property
    def version(self) -> int:
        """The version of the weights: what is asked from now on is sampled from these or newer ones."""

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion: ...
