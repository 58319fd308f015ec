"""An architecture is accepted only if sequences in one row do not affect each other."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Lfm2Config, Lfm2ForCausalLM, PreTrainedModel

from slimrl.errors import UserError
from slimrl.models.check import _gap_everywhere, check_forward
from slimrl.models.forward.attention import ATTENTION
from slimrl.models.forward.training import training_hidden
from tests.tiny import FAMILIES, tiny_module


def module_of(family: str, dtype: torch.dtype = torch.float32) -> Any:
    return prepared(tiny_module(family).to(dtype))


def prepared(module: PreTrainedModel) -> Any:
    module.set_attn_implementation(ATTENTION)
    return module.eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_decoders_that_mix_tokens_only_in_attention_are_accepted(family: str, dtype: torch.dtype) -> None:
    check_forward(module_of(family, dtype))


class Shifted(nn.Module):
    """A layer that mixes in the token before, as recurrent layers and short convolutions do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)
        out: Tensor = self.inner(hidden + 0.4 * before)
        return out


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_that_mix_outside_of_attention_are_refused(dtype: torch.dtype, layer: int) -> None:
    module = module_of("llama", dtype)
    module.model.layers[layer].mlp = Shifted(module.model.layers[layer].mlp)
    with pytest.raises(UserError, match=r"LlamaForCausalLM: two sequences in one row.*softmax attention and nowhere"):
        check_forward(module)


def test_layers_without_attention_are_refused() -> None:
    shape = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 300}
    layers = {"layer_types": ["conv", "full_attention"], "hidden_size": 32, "intermediate_size": 64}
    module = prepared(Lfm2ForCausalLM(Lfm2Config(**shape, **layers)))
    with pytest.raises(UserError, match="Lfm2ForCausalLM: 1 of its 2 layers use the attention of slimrl"):
        check_forward(module)


class NoPlan(nn.Module):
    """A decoder that passes nothing on to its attention."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: Tensor, position_ids: Tensor, use_cache: bool, **_dropped: Any) -> Any:
        return self.inner(input_ids=input_ids, position_ids=position_ids, use_cache=use_cache)


def test_a_decoder_that_drops_the_plan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of("llama")
    monkeypatch.setattr(module, "get_decoder", lambda: NoPlan(module.model))
    with pytest.raises(UserError, match="0 of its 2 layers use the attention of slimrl"):
        check_forward(module)


def test_a_decoder_without_our_arguments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of("llama")
    monkeypatch.setattr(module, "get_decoder", lambda: nn.Identity())
    with pytest.raises(UserError, match=r"cannot be called as slimrl needs to .*unexpected keyword"):
        check_forward(module)


class Scaled(nn.Module):
    """An LM head with a scale of its own."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.inner(hidden) * 1.1
        return out


def test_a_head_that_changes_its_logits_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of("llama")
    head = module.lm_head
    module.lm_head = Scaled(head)
    monkeypatch.setattr(module, "get_output_embeddings", lambda: head)
    with pytest.raises(UserError, match="LlamaForCausalLM changes its logits after the LM head"):
        check_forward(module)


def test_final_soft_capping_is_known() -> None:
    module = module_of("gemma3")
    module.config.final_logit_softcapping = 0.5
    check_forward(module)
    logits = module(input_ids=torch.arange(8)[None]).logits
    assert logits.abs().max() <= 0.5


def test_a_token_that_rounding_throws_about_says_nothing_of_the_forward() -> None:
    theirs_TV = torch.randn(8, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    ours_TV = theirs_TV.clone()
    ours_TV[5] = -ours_TV[5]
    assert _gap_everywhere(ours_TV, theirs_TV, theirs_TV) == 0.0


def test_rounding_that_grows_is_allowed_for_and_half_of_the_tokens_are_not() -> None:
    theirs_TV = torch.randn(8, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    off_TV = theirs_TV * 1.06
    assert _gap_everywhere(off_TV, theirs_TV, theirs_TV) == pytest.approx(0.06, abs=0.005)
    assert _gap_everywhere(off_TV, theirs_TV, theirs_TV * 1.04) == 0.0
    half_TV = torch.cat([theirs_TV[:4], -theirs_TV[4:]])
    assert _gap_everywhere(half_TV, theirs_TV, theirs_TV * 1.04) == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_forward_for_training_of_another_model_is_refused(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    module = module_of("llama", dtype)

    def other(module: Any, *inputs: Any) -> Tensor:
        hidden = training_hidden(module, *inputs)
        return hidden * torch.linspace(-1.0, 1.0, hidden.shape[-1]).to(hidden)

    monkeypatch.setattr("slimrl.models.check.training_hidden", other)
    with pytest.raises(UserError, match="forward for training is not that of LlamaForCausalLM"):
        check_forward(module)
