"""Random batches for a trainer without samplers, to measure its speed and memory. Tokens and advantages are random."""

import random

from slimrl.config.data import FakeDataConfig
from slimrl.transport.base import Batch
from slimrl.types import Sample

# The guard checks only tokens that were sampled from the current weights. No weights have this version, so it skips the
# random tokens.
STALE = -1


def fake_batch(config: FakeDataConfig, vocab_size: int, seed: int, step: int) -> Batch:
    """Return a random batch. Equal seeds and steps give equal batches."""
    rng = random.Random(f"{seed}/{step}")
    samples: list[Sample] = []
    prompt: list[int] = []
    for number in range(config.batch_size):
        if number % config.rollouts_per_example == 0:
            prompt = [rng.randrange(vocab_size) for _ in range(config.prompt_len)]
        completion = [rng.randrange(vocab_size) for _ in range(config.completion_len)]
        read, sampled = len(prompt), len(completion)
        sample = Sample(
            token_ids_T=(*prompt, *completion),
            loss_mask_T=(False,) * read + (True,) * sampled,
            # Close to the log-probability of a random token under an untrained model, so that importance ratios stay
            # within a few orders of magnitude of 1.
            logprobs_T=(0.0,) * read + (-10.0,) * sampled,
            advantages_T=(rng.gauss(0.0, 1.0),) * (read + sampled),
            version=STALE,
        )
        samples.append(sample)
    return Batch(tuple(samples), temperature=1.0)
