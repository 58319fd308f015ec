"""Random batches for the trainer alone, to measure its speed and memory: random tokens and random advantages."""

import random

from slimrl.config.data import FakeDataConfig
from slimrl.transport.base import Batch
from slimrl.types import Sample

# The guard compares only tokens sampled from the current weights. No weights have this version, so the guard skips the
# random tokens.
STALE = -1


class FakeBatches:
    """Random batches; `receive` is for the training loop. Batch n is a function of the seed and n."""

    def __init__(self, config: FakeDataConfig, vocab_size: int, seed: int) -> None:
        self._config = config
        self._vocab_size = vocab_size
        self._seed = seed

    def receive(self, step: int) -> Batch:
        rng = random.Random(f"{self._seed}/{step}")
        samples: list[Sample] = []
        prompt: list[int] = []
        for number in range(self._config.batch_size):
            if number % self._config.rollouts_per_example == 0:
                prompt = self._tokens(rng, self._config.prompt_len)
            samples.append(self._sample(rng, prompt))
        return Batch(tuple(samples), temperature=1.0)

    def _sample(self, rng: random.Random, prompt: list[int]) -> Sample:
        length = self._config.completion_len
        return Sample(
            token_ids_T=(*prompt, *self._tokens(rng, length)),
            loss_mask_T=(False,) * len(prompt) + (True,) * length,
            # Close to the log-probability of a random token under an untrained model, so that importance ratios stay
            # within a few orders of magnitude of 1.
            logprobs_T=(0.0,) * len(prompt) + (-10.0,) * length,
            advantages_T=(rng.gauss(0.0, 1.0),) * (len(prompt) + length),
            version=STALE,
        )

    def _tokens(self, rng: random.Random, length: int) -> list[int]:
        return [rng.randrange(self._vocab_size) for _ in range(length)]
