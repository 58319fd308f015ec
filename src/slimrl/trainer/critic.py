"""The value head of `advantage = "gae"`, generalised advantage estimation, and the value loss.

Index suffix _N: the trained tokens of a micro-batch, concatenated, as in `losses.py`.
"""

import torch
from torch import Tensor, nn

from slimrl.models.device import to_device


class ValueHead(nn.Module):
    """A linear layer from hidden states (N, D) to the expected return (N,), in float32. Its weights start at zero.

    The hidden state that predicts a token holds the policy's knowledge when it sampled that token.
    """

    def __init__(self, hidden_size: int, device: torch.device) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, 1, device=device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        value_N: Tensor = self.linear(hidden_ND.float())[:, 0]
        return value_N


@torch.no_grad()
def gae(
    reward_N: Tensor, value_N: Tensor, sequence_N: Tensor, gamma: float, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    """Return the advantages and returns (N,) of the sampled tokens, computed within each sequence (1506.02438):

    delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1};  return_t = A_t + V_t, with V = A = 0
    after the last token. t counts sampled tokens only: the environment's tokens between two turns take no time.
    """
    # A_t depends on A_{t+1}, so this is a loop, over Python floats.
    rewards, values, sequences = reward_N.tolist(), value_N.tolist(), sequence_N.tolist()
    advantages = [0.0] * len(rewards)
    later_value = later_advantage = 0.0
    for n in reversed(range(len(rewards))):
        if n + 1 == len(rewards) or sequences[n + 1] != sequences[n]:
            later_value = later_advantage = 0.0
        delta = rewards[n] + gamma * later_value - values[n]
        later_advantage = delta + gamma * gae_lambda * later_advantage
        later_value = values[n]
        advantages[n] = later_advantage
    advantage_N = to_device(advantages, value_N.dtype, value_N.device)
    return advantage_N, advantage_N + value_N


def value_loss(value_N: Tensor, return_N: Tensor) -> Tensor:
    """Return (V - return)^2 / 2. Unlike PPO's it needs no clip: a batch is used for one update, so V has not
    changed."""
    return 0.5 * (value_N - return_N).square()
