"""Checks that slimrl can sample from a model's architecture and train it. A loaded model runs on a few test tokens.

Sampling and training concatenate many sequences in one row, and only the attention plan separates them. If a model
mixes tokens anywhere else (a convolution, a recurrence), information leaks from one sequence into the next without any
error. So such a model is refused.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.models.forward.attention import LayerInputs, plain_causal
from slimrl.models.forward.fused import can_fuse, rotary_factors
from slimrl.models.forward.module import head_logits, last_hidden
from slimrl.models.forward.training import apply_norm, layer_output

# Tokens in each of the two sequences: the usual width of the convolutions in hybrid models.
LENGTH = 4
# The largest difference, relative to a token's logits, that rounding can cause: in float32, and in 16-bit dtypes.
TOLERANCE, TOLERANCE_HALF = 1e-3, 0.03


class _EndToEnd:
    """An attention plan that separates two concatenated sequences. `layers` lists the layers that have called
    `attend`."""

    def __init__(self) -> None:
        self.layers: list[int] = []

    def attend(self, inputs: LayerInputs) -> Tensor:
        self.layers.append(inputs.layer)
        parts = zip(*(x.split(LENGTH, dim=2) for x in (inputs.query, inputs.key, inputs.value)), strict=True)
        return torch.cat([plain_causal(replace(inputs, query=q, key=k, value=v)) for q, k, v in parts], dim=1)


def check_attention(config: Any) -> None:
    """Raise UserError for a configuration with multi-head latent attention (DeepSeek-V2, 2405.04434). Its keys and
    values have different sizes, so they do not fit the cache."""
    text = config.get_text_config()
    if text.to_dict().get("kv_lora_rank"):
        raise UserError(
            f"slimrl cannot sample from {text.model_type}: its multi-head latent attention (kv_lora_rank) has keys and "
            "values of different sizes. Take a model with grouped-query attention, such as Llama, Qwen 3 or Gemma 3."
        )


@torch.inference_mode()
def check_forward(module: nn.Module) -> None:
    """Check that slimrl's forward equals the model's own, and that two sequences in one row do not change each other's
    logits.

    Raises UserError if the logits differ by more than rounding, or if a layer does not call the attention plan. The
    second check computes the two sequences in both orders, so that the rows have the same shape. Rounding depends on
    the shape.
    """
    check_attention(module.config)
    rows = module.get_input_embeddings().num_embeddings  # type: ignore[operator]
    device = next(module.parameters()).device
    # Distinct token ids, spread over the vocabulary.
    token_ids_T = torch.arange(1, 2 * LENGTH + 1, device=device) * (rows // (4 * LENGTH))
    swapped_T = token_ids_T.roll(LENGTH)
    positions_T = torch.arange(2 * LENGTH, device=device)
    plan = _EndToEnd()
    try:
        theirs = module(input_ids=token_ids_T[None], use_cache=False).logits[0]
        ours = head_logits(module, last_hidden(module, token_ids_T, positions_T, None))
        packed = head_logits(module, last_hidden(module, token_ids_T, positions_T % LENGTH, plan))
        num_asked = len(plan.layers)
        swapped = head_logits(module, last_hidden(module, swapped_T, positions_T % LENGTH, plan))
    except (TypeError, AttributeError) as error:  # the class lacks an argument or a part that slimrl needs
        raise _refusal(module, f"its forward cannot be called as slimrl needs to ({error})") from error
    if gap := _gap(ours, theirs):
        raise UserError(
            f"{type(module).__name__} changes its logits after the LM head in a way slimrl does not know (relative "
            f"difference {gap:.2g}); train another architecture, or teach `slimrl/models/forward/module.py` this one."
        )
    num_layers = module.config.get_text_config().num_hidden_layers  # type: ignore[union-attr,operator]
    if sorted(plan.layers[:num_asked]) != list(range(num_layers)):
        raise _refusal(module, f"{num_asked} of its {num_layers} layers use the attention of slimrl")
    # If nothing leaks, the logits of a sequence are the same before and after the other sequence.
    if gap := _gap(swapped.roll(LENGTH, dims=0), packed):
        raise _refusal(module, f"two sequences in one row change each other's logits (relative difference {gap:.2g})")
    if can_fuse(module):
        _check_training(module, token_ids_T, positions_T % LENGTH, plan)


def _check_training(module: nn.Module, token_ids_T: Tensor, positions_T: Tensor, plan: _EndToEnd) -> None:
    """Compare each layer of the training forward with the module's layer, on the input that the module's layer gets.

    Each layer is compared alone, because rounding errors grow over many layers until they look like a mistake. The test
    tokens are not real text, and for them rounding can change a trained model's logits completely. Raises UserError if
    a layer or the last norm differs by more than rounding.
    """
    causal: Any = module
    decoder = causal.get_decoder()
    hidden_TD: Tensor = decoder.embed_tokens(token_ids_T)
    factors = decoder.rotary_emb(hidden_TD[None], positions_T[None])
    rotary = rotary_factors(decoder, hidden_TD, positions_T)
    for layer in decoder.layers:
        theirs_TD = layer(hidden_TD[None], position_embeddings=factors, attention_plan=plan)[0]
        ours_TD = layer_output(layer, causal.config, hidden_TD, rotary, plan)
        _compare(module, ours_TD, theirs_TD, theirs_TD - hidden_TD)
        hidden_TD = theirs_TD
    theirs_TD = decoder.norm(hidden_TD)
    _compare(module, apply_norm(hidden_TD, decoder.norm), theirs_TD, theirs_TD)


def _compare(module: nn.Module, ours_TD: Tensor, theirs_TD: Tensor, change_TD: Tensor) -> None:
    """Raise UserError if slimrl's output of a layer or a norm differs from the module's. The allowed difference is
    relative to `change_TD`, the part of the output that the layer adds to its input."""
    # The tolerance is relative to the layer's change. Adding the change to the layer's input rounds once or twice more.
    allowed_T = _tolerance(theirs_TD) * _norms(change_TD) + 2 * torch.finfo(theirs_TD.dtype).eps * _norms(theirs_TD)
    ratio_T = _norms(ours_TD.float() - theirs_TD.float()) / allowed_T
    if (ratio := ratio_T.nanmean().item()) > 1.0:
        raise UserError(
            f"slimrl's forward for training is not that of {type(module).__name__} ({ratio:.2g} times the difference "
            "that rounding makes): `slimrl/models/forward/training.py` takes this model for one that it is not. Please "
            "report it."
        )


def _norms(x_TD: Tensor) -> Tensor:
    norms_T: Tensor = x_TD.float().norm(dim=-1)
    return norms_T


def _gap(ours: Tensor, theirs: Tensor) -> float:
    """Return the mean over tokens of the relative difference of the logits (T, V); 0 if rounding can explain it."""
    gap_T = _norms(ours.float() - theirs.float()) / _norms(theirs)
    gap = gap_T.nanmean().item()  # a padding token may have a zero embedding, and thus zero logits
    return 0.0 if gap <= _tolerance(theirs) else gap


def _tolerance(logits: Tensor) -> float:
    return TOLERANCE if logits.dtype == torch.float32 else TOLERANCE_HALF


def _refusal(module: nn.Module, reason: str) -> UserError:
    return UserError(
        f"slimrl cannot train a {type(module).__name__}: {reason}. It packs sequences end to end, which only decoders "
        "allow whose tokens meet in softmax attention and nowhere else, such as Llama, Qwen 3 or Gemma 3: no "
        "convolutions, no recurrent or state-space layers."
    )
