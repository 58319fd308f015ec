"""An architecture is accepted only if sequences in one row do not affect each other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, Lfm2Config, Lfm2ForCausalLM, PreTrainedModel

from slimrl.errors import UserError
from slimrl.models.check import check_forward
from slimrl.models.forward.attention import ATTENTION
from slimrl.models.forward.training import layer_output
from tests.models.native.cases import skip_without_kernels
from tests.tiny import FAMILIES, tiny_module


def prepared(module: PreTrainedModel) -> Any:
    module.set_attn_implementation(ATTENTION)
    return module.eval()


def module_of(family: str, dtype: torch.dtype = torch.float32, layers: int = 2) -> Any:
    return prepared(tiny_module(family, layers=layers).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", [*FAMILIES, "granite", "smollm3"])
def test_decoders_that_mix_tokens_only_in_attention_are_accepted(family: str, dtype: torch.dtype) -> None:
    check_forward(module_of(family, dtype))


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_that_mix_outside_of_attention_are_refused(dtype: torch.dtype, layer: int) -> None:
    def mix_in_the_token_before(mlp: nn.Module, args: tuple[Tensor]) -> Tensor:
        """As recurrent layers and short convolutions do."""
        (hidden,) = args
        return hidden + 0.4 * torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)

    module = module_of("llama", dtype)
    module.model.layers[layer].mlp.register_forward_pre_hook(mix_in_the_token_before)
    with pytest.raises(UserError, match=r"LlamaForCausalLM: two sequences in one row.*softmax attention and nowhere"):
        check_forward(module)


def latent_attention() -> PreTrainedModel:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 16, "num_attention_heads": 2}
    ranks = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
    few = {"num_hidden_layers": 1, "vocab_size": 300, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_group": 1}
    return DeepseekV3ForCausalLM(DeepseekV3Config(**sizes, **ranks, **few, topk_group=1, num_key_value_heads=2))


def convolution() -> PreTrainedModel:
    shape = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 300}
    layers = {"layer_types": ["conv", "full_attention"], "hidden_size": 32, "intermediate_size": 64}
    return Lfm2ForCausalLM(Lfm2Config(**shape, **layers))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (latent_attention, "cannot sample from deepseek_v3: its multi-head latent attention"),
        (convolution, "Lfm2ForCausalLM: 1 of its 2 layers use the attention of slimrl"),
    ],
)
def test_layers_of_another_kind_are_refused(make: Callable[[], PreTrainedModel], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_forward(prepared(make()))


def without_plan(decoder: nn.Module) -> Callable[..., Any]:
    return lambda attention_plan, **given: decoder(**given)


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (without_plan, "0 of its 2 layers use the attention of slimrl"),
        (lambda _: nn.Identity(), r"cannot be called as slimrl needs to .*unexpected keyword"),
    ],
)
def test_a_decoder_that_does_not_take_the_plan_is_refused(
    decoder: Callable[..., Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of("llama")
    monkeypatch.setattr(module, "get_decoder", lambda: decoder(module.model))
    with pytest.raises(UserError, match=message):
        check_forward(module)


def test_a_head_that_changes_its_logits_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of("llama")
    monkeypatch.setattr(module, "get_output_embeddings", lambda: lambda hidden: module.lm_head(hidden) / 1.1)
    with pytest.raises(UserError, match="LlamaForCausalLM changes its logits after the LM head"):
        check_forward(module)


def test_weights_that_rounding_throws_about_are_accepted() -> None:
    """Sharp attention in many layers multiplies an error in the last digit until the logits have little in common."""
    module = module_of("llama", layers=16)
    for layer in module.model.layers:
        layer.self_attn.q_proj.weight.data *= 30
        layer.mlp.down_proj.weight.data *= 4
    token_ids = torch.arange(8)[None] * 7
    exact = module(input_ids=token_ids).logits[0]
    module = module.bfloat16()
    rounded = module(input_ids=token_ids).logits[0].float()
    assert ((rounded - exact).norm(dim=-1) / exact.norm(dim=-1)).mean() > 0.1
    check_forward(module)


def unrotated(layer: Any, config: Any, hidden: Tensor, rotary: Any, plan: Any) -> Tensor:
    return layer_output(layer, config, hidden, (torch.ones_like(rotary[0]), torch.zeros_like(rotary[1])), plan)


def a_tenth_more(layer: Any, config: Any, hidden: Tensor, rotary: Any, plan: Any) -> Tensor:
    return hidden + 1.1 * (layer_output(layer, config, hidden, rotary, plan) - hidden)


def another_norm(x: Tensor, norm: Any) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("part", "other"), [("layer_output", unrotated), ("layer_output", a_tenth_more), ("apply_norm", another_norm)]
)
def test_a_part_for_training_of_another_model_is_refused(
    part: str, other: Callable[..., Tensor], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_kernels()  # the forward for training is not used then
    monkeypatch.setattr(f"slimrl.models.check.{part}", other)
    with pytest.raises(UserError, match="forward for training is not that of LlamaForCausalLM"):
        check_forward(module_of("llama", dtype))
