"""Log-probabilities of the trained tokens, without ever holding a (T, V) tensor of floats.

One forward of the packed row; then the LM head runs on trained positions only, a chunk at a time, and each chunk is
computed again in the backward pass instead of being kept.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from slimrl.models.forward import head_logits, hidden_states
from slimrl.trainer.packing import Pack, PackedPlan

CHUNK = 512


def target_logprobs(module: nn.Module, pack: Pack, temperature: float) -> tuple[Tensor, Tensor]:
    """(logprob_N, entropy_N) of the pack's targets under softmax(logits / temperature), float32.

    The entropy is that of the whole distribution, in nats, and carries no gradient.
    """
    hidden_TD = hidden_states(module, pack.token_ids_T, pack.positions_T, PackedPlan(pack))
    hidden_ND = hidden_TD.index_select(0, pack.source_N)
    logprobs, entropies = [], []
    for start in range(0, len(pack.target_N), CHUNK):
        rows = slice(start, start + CHUNK)
        logprob, entropy = checkpoint(
            _chunk, module, hidden_ND[rows], pack.target_N[rows], temperature, use_reentrant=False
        )
        logprobs.append(logprob)
        entropies.append(entropy)
    return torch.cat(logprobs), torch.cat(entropies)


def _chunk(module: nn.Module, hidden_ND: Tensor, target_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits_NV = head_logits(module, hidden_ND).float()
    if temperature != 1.0:
        logits_NV = logits_NV / temperature
    logprobs_NV = logits_NV.log_softmax(-1)
    with torch.no_grad():
        entropy_N = -(logprobs_NV.exp() * logprobs_NV).nan_to_num(0.0).sum(-1)
    return logprobs_NV.gather(-1, target_N[:, None])[:, 0], entropy_N
