"""A tiny policy to train, made afresh each time."""

import torch

from slimrl.config.train import OptimConfig
from slimrl.models.chat.template import ChatFormat
from slimrl.models.load import Policy
from slimrl.trainer.checkpoint import fresh_progress
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.state import TrainState
from tests.tiny import tiny_tokenizer
from tests.trainer.samples import CPU, policy_module


def tiny_policy(family: str = "llama", dtype: torch.dtype = torch.float32) -> Policy:
    """A tiny random model with its tokenizer."""
    tokenizer = tiny_tokenizer()
    return Policy(policy_module(family).to(dtype), tokenizer, ChatFormat(tokenizer), "tiny", dtype, CPU)


def tiny_state(lr: float = 1e-3, family: str = "llama") -> TrainState:
    """A run that has not begun."""
    policy = tiny_policy(family)
    return TrainState(policy, MasterAdamW(policy.module, OptimConfig(lr=lr)), fresh_progress(policy.dtype))
