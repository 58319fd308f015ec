"""The engine's oracle: one sequence at a time through transformers' own forward and cache, in the plainest way.

Knows nothing of slots, batches, shared prefixes or cancellation. Weights may change while a sequence grows: each token
is computed with the weights that its version names, on keys and values that stay what they were.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from tests.tiny import tiny_module

Weights = Mapping[str, Tensor]


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
