"""The two halves of a causal LM's forward: tokens to hidden states, hidden states to logits.

Kept apart so that the LM head, a fifth of a small model's work and nearly all of its memory, runs only on the positions
that need it. Any transformers causal LM; `check_head` refuses one whose head does something not known here.
"""

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.models.attention import AttentionPlan


def hidden_states(module: nn.Module, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan | None) -> Tensor:
    """Final hidden states (T, D) of one flat row of tokens, each at its own position; `plan` says who sees whom."""
    decoder = module.get_decoder()  # type: ignore[operator]
    output = decoder(input_ids=token_ids_T[None], position_ids=positions_T[None], use_cache=False, attention_plan=plan)
    hidden: Tensor = output.last_hidden_state[0]
    return hidden


def head_logits(module: nn.Module, hidden_ND: Tensor) -> Tensor:
    """Logits (N, V) in the module's dtype, with the final soft-capping of Gemma 2 where the config asks for it."""
    logits: Tensor = module.get_output_embeddings()(hidden_ND)  # type: ignore[operator]
    cap = module.config.to_dict().get("final_logit_softcapping")  # type: ignore[union-attr,operator]
    return logits if cap is None else torch.tanh(logits / cap) * cap


@torch.inference_mode()
def check_head(module: nn.Module) -> None:
    """Compare our two halves with the model's own forward on a few tokens. Raises UserError if they differ."""
    device = next(module.parameters()).device
    token_ids_T = torch.arange(4, device=device)
    theirs = module(input_ids=token_ids_T[None], use_cache=False).logits[0].float()
    ours = head_logits(module, hidden_states(module, token_ids_T, torch.arange(4, device=device), None)).float()
    gap = (theirs - ours).abs().max().item()
    if gap > 0.02 * theirs.abs().max().item() + 1e-4:
        raise UserError(
            f"{type(module).__name__} changes its logits after the LM head in a way slimrl does not know (largest "
            f"difference {gap:.3g}); train another architecture, or teach `slimrl/models/forward.py` this one."
        )
