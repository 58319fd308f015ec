"""Defines `Client.sample`, the interface through which rollouts sample. Knows nothing of its implementations."""

from dataclasses import dataclass
from typing import Literal, Protocol

from slimrl.types import SamplingParams

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Completion:
    """The sampled token ids (with the stop token), and the log-probability and weight version of each token.

    For example token_ids (42, 2), logprobs (-0.7, -0.1), versions (3, 4): the weights were updated in between.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    finish_reason: FinishReason


class Client(Protocol):
    """Samples continuations of token ids. `LocalClient`, `RemoteClient` and fakes in tests have this interface."""

    @property
    def version(self) -> int:
        """The version of the weights. New requests are sampled from this version or a newer one."""

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion: ...
