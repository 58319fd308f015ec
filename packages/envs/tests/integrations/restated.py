"""What SLIME 0.3 hands to a custom generate function and does with what comes back, restated from its documentation and
its source: the `Sample`, the `args` of its parser, and what it asserts before it trains. No code of it is copied.
"""

import inspect
import math
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


@dataclass
class Sample:
    """The fields that a generate function may see or fill, with their defaults."""

    group_index: int | None = None
    index: int | None = None
    prompt: Any = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: Any = None
    reward: Any = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    remove_sample: bool = False

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)
    session_id: str | None = None


def bare_args(**more: Any) -> Namespace:
    """The arguments of the contract tests, which know of no server and no model."""
    return Namespace(
        partial_rollout=False,
        mask_offpolicy_in_partial_rollout=False,
        group_rm=False,
        custom_generate_function_path=None,
        rollout_seed=7,
        n_samples_per_prompt=2,
        **more,
    )


def slime_args(checkpoint: str, port: int, **more: Any) -> Namespace:
    """The arguments of a run."""
    known = {
        "hf_checkpoint": checkpoint,
        "sglang_router_ip": "127.0.0.1",
        "sglang_router_port": port,
        "rollout_max_context_len": None,
        "use_rollout_routing_replay": False,
        "max_turns": 20,
    }
    return bare_args(**(known | more))


def sampling_params(**more: Any) -> dict[str, Any]:
    """What SLIME passes on to SGLang."""
    return {
        "temperature": 0.8,
        "top_p": 1.0,
        "top_k": -1,
        "max_new_tokens": 4000,
        "stop": None,
        "stop_token_ids": None,
        "skip_special_tokens": False,
        "no_stop_trim": True,
        "spaces_between_special_tokens": False,
        **more,
    }


async def generate_and_rm(function: Any, args: Namespace, sample: Sample, params: Mapping[str, Any]) -> Sample:
    """The part of SLIME's default rollout that calls the function: by its signature, and no reward model where the
    sample has a reward."""
    names = tuple(inspect.signature(function).parameters)
    assert names[:3] == ("args", "sample", "sampling_params")
    more = {"evaluation": False} if "evaluation" in names else {}
    result = await function(args, sample, dict(params), **more)
    assert isinstance(result, Sample)
    if result.status != Sample.Status.ABORTED:
        assert result.reward is not None, "SLIME would ask a reward model now"
    return result


def check_trainable(sample: Sample) -> None:
    """Assert the contract of a result, and the conditions under which samples become training data."""
    assert isinstance(sample.tokens, list) and isinstance(sample.response, str)
    assert 1 <= sample.response_length < len(sample.tokens)
    assert all(type(token) is int for token in sample.tokens)
    assert sample.loss_mask is not None and sample.rollout_log_probs is not None
    assert len(sample.loss_mask) == len(sample.rollout_log_probs) == sample.response_length
    assert set(sample.loss_mask) <= {0, 1}
    assert 1 in sample.loss_mask or sample.remove_sample
    assert all(math.isfinite(logprob) and logprob <= 0.0 for logprob in sample.rollout_log_probs)
    for mask, logprob in zip(sample.loss_mask, sample.rollout_log_probs, strict=True):
        assert mask == 1 or logprob == 0.0
    assert isinstance(sample.reward, float) and 0.0 <= sample.reward <= 1.0
