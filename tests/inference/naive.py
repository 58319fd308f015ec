"""Engines of tiny models, and their oracle: one sequence at a time through transformers' own forward and cache.

Knows nothing of slots, batches, shared prefixes or cancellation. Weights may change while a sequence grows: each token
is computed with the weights that its version names, on keys and values that stay what they were.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from slimrl.inference.engine import Engine
from slimrl.inference.scheduler import PLAIN, Request, RequestOptions
from slimrl.types import SamplingParams
from tests.tiny import tiny_module
from tests.trainer.samples import policy_module

Weights = Mapping[str, Tensor]


def engine_of(
    family: str = "llama", num_slots: int = 4, stop_ids: Iterable[int] = (), capacity: int = 64, **settings: Any
) -> Engine:
    return Engine(policy_module(family), frozenset(stop_ids), num_slots, capacity, **settings)


def submit(engine: Engine, prompt: Sequence[int], params: SamplingParams, options: RequestOptions = PLAIN) -> Request:
    return engine.submit(list(prompt), params, lambda sampled: False, options)


def finish(engine: Engine) -> int:
    """Run all requests; return the number of steps."""
    steps = 0
    while engine.busy:
        engine.step()
        steps += 1
    return steps


def run_all(
    engine: Engine, requests: Iterable[tuple[Sequence[int], SamplingParams]], stagger: int = 0
) -> list[Request]:
    """Run the requests, of which `stagger` join at each step; 0 means all at once."""
    sequences, pending = [], list(requests)
    while pending or engine.busy:
        joining, pending = pending[: stagger or None], pending[stagger:] if stagger else []
        sequences += [submit(engine, *request) for request in joining]
        engine.step()
    return sequences


def naive_module(family: str) -> PreTrainedModel:
    module = tiny_module(family).eval()
    module.set_attn_implementation("eager")
    return module


@torch.inference_mode()
def naive_greedy(
    module: PreTrainedModel, prompt: list[int], versions: Sequence[int], weights: Mapping[int, Weights]
) -> tuple[list[int], list[float]]:
    """The likeliest token, `len(versions)` times, and its log-probability; `versions` names the weights of each."""
    cache = DynamicCache(config=module.config)
    fed, tokens, logprobs = list(prompt), [], []
    for version in versions:
        module.load_state_dict(weights[version])
        # By position: transformers calls the cache `cache` since 5.24, and `past_key_values` before.
        logits = module(torch.tensor([fed]), None, None, cache, use_cache=True).logits[0, -1]
        logprobs_V = logits.float().log_softmax(-1)
        fed = [int(logprobs_V.argmax())]
        tokens += fed
        logprobs.append(float(logprobs_V[fed[0]]))
    return tokens, logprobs


@torch.inference_mode()
def naive_prompt_logprobs(module: PreTrainedModel, prompt: list[int]) -> Tensor:
    """The log-probabilities (T - 1, V) of whatever may follow each of the prompt's tokens but the last."""
    return module(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, :-1].float().log_softmax(-1)
