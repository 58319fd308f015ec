"""The value head of `advantage = "gae"`, and what it makes of rewards. Pure functions, and a module of one layer.

Index suffix _N: the trained tokens of a micro-batch, laid end to end, as in `losses.py`.
"""

import torch
from torch import Tensor, nn


class ValueHead(nn.Module):
    """Expected return (N,) from hidden states (N, D), in float32. It begins at zero.

    The hidden state before a sampled token is what the policy knew when it sampled it.
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
    """(advantage_N, return_N) of the sampled tokens, each sequence for itself (1506.02438):

    delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1};  return_t = A_t + V_t, with V = A = 0
    behind the last token. What the environment says between two turns takes no time: t counts sampled tokens.
    """
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
    advantage_N = torch.tensor(advantages, device=value_N.device, dtype=value_N.dtype)
    return advantage_N, advantage_N + value_N


def value_loss(value_N: Tensor, return_N: Tensor) -> Tensor:
    """(V - return)^2 / 2. Not clipped, as PPO's often is: a batch is used for one update, so V has not moved yet."""
    return 0.5 * (value_N - return_N).square()
