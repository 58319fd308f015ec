"""What a GGUF file says beyond a model's shape is carried over, or the file is refused by the key's name."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from slimrl.errors import UserError
from slimrl.models.gguf import convert
from slimrl.models.gguf_header import read_header
from slimrl.models.gguf_metadata import LLAMA3, build_config
from tests.models.gguf_files import More, write_gguf
from tests.tiny import tiny_module, tiny_tokenizer

THETA = 10000.0
HEAD = 8


def scaled_module(family: str, rope: dict[str, Any]) -> PreTrainedModel:
    """A tiny model whose rotary positions are scaled by transformers' own `rope_parameters`."""
    plain = tiny_module(family)
    config = type(plain.config).from_dict(plain.config.to_dict())
    config.rope_parameters = rope
    if "partial_rotary_factor" in rope:  # where transformers 5.0 looks for it
        config.partial_rotary_factor = rope["partial_rotary_factor"]
    if family == "qwen2":  # files have no windows of it
        config.layer_types = ["full_attention"] * config.num_hidden_layers
    module = type(plain)(config)
    module.load_state_dict(plain.state_dict())
    return module.eval()


def logits(module: torch.nn.Module) -> torch.Tensor:
    """The logits of 200 tokens at positions from 50 on: beyond every original context of these tests."""
    with torch.inference_mode():
        tokens = torch.arange(200)[None] % 290 + 3
        found: torch.Tensor = module(tokens, position_ids=torch.arange(50, 250)[None]).logits[0]
    return found


def converted(path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(convert(path)).eval()


def llama3_factors(
    factor: float, low: float, high: float, original: int, theta: float = THETA, width: int = HEAD
) -> np.ndarray:
    """The tensor `rope_freqs.weight`, written as llama.cpp's converter writes it."""
    factors = []
    for exponent in range(0, width, 2):
        wavelength = 2 * math.pi * theta ** (exponent / width)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors)


def scaling(**keys: Any) -> dict[str, Any]:
    return {f"rope.scaling.{name}": value for name, value in keys.items()}


LONGROPE = {"short_factor": [1.0, 1.2, 1.5, 2.0], "long_factor": [1.0, 2.0, 5.0, 9.0]}
TENSORS = {f"rope_factors_{name.removesuffix('_factor')}.weight": np.array(LONGROPE[name]) for name in LONGROPE}
LONG = {"rope_type": "longrope", **LONGROPE, "original_max_position_embeddings": 64, "attention_factor": 1.2}
SCALED: dict[str, tuple[dict[str, Any], More]] = {
    "llama 3.2": (
        {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 32.0, **LLAMA3},
        More(tensors={"rope_freqs.weight": llama3_factors(32.0, 1.0, 4.0, 8192, 500000.0)}),
    ),
    "linear": ({"rope_type": "linear", "factor": 4.0}, More(scaling(type="linear", factor=4.0))),
    "longrope": (LONG, More(scaling(type="longrope", attn_factor=1.2, original_context_length=64), TENSORS)),
    "none": ({"rope_type": "default"}, More(scaling(type="none"), {"rope_freqs.weight": np.ones(HEAD // 2)})),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "family"),
    [
        *(("llama 3.2", "llama"), ("linear", "qwen3"), ("longrope", "llama"), ("none", "qwen3")),
        *(("linear", "qwen2"), ("longrope", "phi3"), ("none", "phi3")),
    ],
)
def test_scaled_positions_give_the_logits_of_transformers_own_scaling(family: str, name: str, tmp_path: Path) -> None:
    rope, more = SCALED[name]
    if family == "phi3":  # half of each head is rotated
        halves = {key: value[: HEAD // 4] for key, value in rope.items() if isinstance(value, list)}
        rope = {**rope, **halves, "partial_rotary_factor": 0.5}
        more = More(more.keys, {key: value[: HEAD // 4] for key, value in more.tensors.items()})
    original = scaled_module(family, {"rope_theta": THETA, **rope})
    module = converted(write_gguf(tmp_path / "m.gguf", original, tiny_tokenizer(), more=more))
    torch.testing.assert_close(logits(module), logits(original), atol=2e-5, rtol=1e-4)
    if name == "llama 3.2":  # the scaling of published Llamas keeps its name
        assert module.config.rope_parameters == rope
    if rope["rope_type"] != "default":
        unscaled = {"rope_type": "default", "rope_theta": THETA} | {
            key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope
        }
        assert (logits(module) - logits(scaled_module(family, unscaled))).abs().max() > 0.01


@pytest.mark.parametrize("family", ["granite", "smollm3"])
def test_architectures_beside_llama_give_the_logits_of_transformers(family: str, tmp_path: Path) -> None:
    original = tiny_module(family, layers=4).eval()
    module = converted(write_gguf(tmp_path / "m.gguf", original, tiny_tokenizer()))
    assert type(module) is type(original)
    torch.testing.assert_close(logits(module), logits(original), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("pattern", [2, [True, False]])
def test_scaling_of_gemma_leaves_layers_with_a_window_alone(pattern: object, tmp_path: Path) -> None:
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
    }
    original = scaled_module("gemma3", rope)
    keys = {
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
        "attention.sliding_window_pattern": pattern,
        "rope.freq_base_swa": 10000.0,
    }
    module = converted(write_gguf(tmp_path / "g.gguf", original, tiny_tokenizer(), more=More(keys)))
    assert module.config.layer_types == ["sliding_attention", "full_attention"]
    torch.testing.assert_close(logits(module), logits(original), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "keys",
    [
        {"logit_scale": 0.0, "expert_count": 0, "rope.scaling.yarn_log_multiplier": 0.0},
        {"attention.sliding_window": 512, "rope.scaling.finetuned": False},
        {"general.sampling.temp": 0.6, "tokenizer.ggml.fim_pre_token_id": 3, "split.count": 1},
    ],
)
def test_keys_that_change_nothing_are_let_pass(keys: dict[str, Any], tmp_path: Path) -> None:
    module = converted(write_gguf(tmp_path / "m.gguf", tiny_module("llama"), tiny_tokenizer(), more=More(keys)))
    assert torch.equal(logits(module), logits(tiny_module("llama").eval()))


# Metadata that a file of Llama may have besides, and the part of the message that names it.
REFUSED: list[tuple[More, str]] = [
    (More({"general.architecture": "gpt2"}), r"gpt2 is not known here, or .* \(known: llama,.*granite\)"),
    (More({"attention.scale": 0.1}), r"llama\.attention\.scale = 0\.1"),
    (More({"attention.causal": False}), r"llama\.attention\.causal = False"),
    (More({"rope.scale_linear": 2.0}), r"llama\.rope\.scale_linear = 2\.0"),
    (More({"block_count": 2**31}), r"llama\.block_count is 2147483648, with \d+ tensors"),
    (More({"logit_scale": 0.125}), r"llama\.logit_scale = 0\.125"),
    (More({"embedding_scale": 12.0}), r"llama\.embedding_scale = 12\.0"),
    (More({"residual_scale": 0.22}), r"llama\.residual_scale"),
    (More({"expert_count": 8, "expert_used_count": 2}), r"llama\.expert_count = 8"),
    (More({"final_logit_softcapping": 30.0}), r"final_logit_softcapping = 30\.0"),
    (More({"attention.sliding_window": 16}), r"attention\.sliding_window = 16"),
    (More({"attention.temperature_scale": 0.1}), r"attention\.temperature_scale"),
    (More({"rope.dimension_count": 4, "attention.key_length": 8}), r"rope\.dimension_count"),
    (More({"attention.key_length": 8, "attention.value_length": 4}), r"different widths"),
    (More(scaling(type="ntk", factor=2.0)), r"rope\.scaling\.type = ntk"),
    (More(scaling(type="yarn", factor=2.0)), r"rope\.scaling\.type = yarn"),
    (More(scaling(type="longrope", factor=2.0)), r"type = longrope is not known here with the tensors \[\]"),
    (More({"a_key_of_tomorrow": 1}), r"llama\.a_key_of_tomorrow = 1"),
    (More({"feed_forward_length": [64, 32]}), r"feed_forward_length differs from layer to layer"),
    (More({"feed_forward_length": 48}), r"size mismatch for model\.layers\.0\.mlp\.gate_proj\.weight"),
    (More({"tokenizer.ggml.suppress": True}), r"tokenizer\.ggml\.suppress"),
    (More({"tokenizer.ggml.pre": "viking"}), r"`viking` is not known"),
    (More({"split.count": 2, "split.no": 0}), r"llama-gguf-split --merge"),
    (More(tensors={"blk.0.attn_q.bias": np.ones(32)}), r"no place in the architecture, such as blk\.0\.attn_q\.b"),
    (More(tensors={"rope_freqs.weight": np.ones(4) * 2}), "other factors than Llama 3's"),
    (More(scaling(type="linear", factor=2.0), {"rope_freqs.weight": np.ones(4) * 2}), "rope_freqs"),
    (More(tensors=dict([*TENSORS.items()][1:])), r"with the tensors \['rope_factors_long.weight'\]"),
    (More(scaling(type="yarn", factor=4.0), TENSORS), "type = yarn"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("more", "named"), REFUSED)
def test_what_would_be_lost_is_refused_by_name(more: More, named: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=named):
        convert(write_gguf(tmp_path / "m.gguf", tiny_module("llama"), tiny_tokenizer(), more=more))


def test_granite_without_rotary_positions_is_refused(tmp_path: Path) -> None:
    more = More({"rope.scaling.finetuned": False})
    with pytest.raises(UserError, match=r"granite\.rope\.scaling\.finetuned = False"):
        convert(write_gguf(tmp_path / "m.gguf", tiny_module("granite"), tiny_tokenizer(), more=more))


def test_the_largest_gemma_scales_its_queries_by_the_width_per_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = read_header(write_gguf(tmp_path / "g.gguf", tiny_module("gemma3"), tiny_tokenizer()))
    wide = {"gemma3.attention.key_length": 32, "gemma3.attention.value_length": 32}
    header = replace(header, metadata=header.metadata | wide)
    assert build_config(header).query_pre_attn_scalar == 32
    monkeypatch.setattr("slimrl.models.gguf_metadata.GEMMA3_27B_LAYERS", header.metadata["gemma3.block_count"])
    width = header.metadata["gemma3.embedding_length"] // header.metadata["gemma3.attention.head_count"]
    assert build_config(header).query_pre_attn_scalar == width != 32


def test_every_token_that_ends_a_reply_and_every_chat_template_is_kept(tmp_path: Path) -> None:
    keys = {"tokenizer.ggml.eot_token_id": 1, "tokenizer.ggml.eom_token_id": 2}
    keys |= {"tokenizer.chat_templates": ["tool_use"], "tokenizer.chat_template.tool_use": "with tools"}
    path = write_gguf(tmp_path / "m.gguf", tiny_module("llama"), tiny_tokenizer(), more=More(keys))
    assert converted(path).generation_config.eos_token_id == [2, 1]
    tokenizer = AutoTokenizer.from_pretrained(convert(path))
    question = [{"role": "user", "content": "x"}]
    assert tokenizer.apply_chat_template(question, tools=[{"type": "function"}], tokenize=False) == "with tools"
    assert "<|im_start|>user" in tokenizer.apply_chat_template(question, tokenize=False)


def test_tokenizers_like_llama3s_take_whole_words_and_begin_with_bos(tmp_path: Path) -> None:
    source = tiny_tokenizer()
    for number, (given, starts) in enumerate([(None, True), (False, False), (True, True)]):
        keys = {"tokenizer.ggml.add_bos_token": given}
        path = write_gguf(tmp_path / f"{number}.gguf", tiny_module("llama"), source, pre="llama-bpe", more=More(keys))
        tokenizer = AutoTokenizer.from_pretrained(convert(path))
        assert tokenizer.backend_tokenizer.model.ignore_merges
        assert (tokenizer("the")["input_ids"][0] == source.bos_token_id) is starts


def test_sentencepiece_puts_a_space_in_front_only_where_the_file_has_one(tmp_path: Path) -> None:
    pieces = ["<unk>", "<s>", "</s>", "▁", "h", "i", "hi", "▁hi", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [f"[PAD{number}]" for number in range(300 - len(pieces))]
    common = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [-float(number) for number in range(300)],
        "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 5, *[6] * 256, *[5] * 36],
        "tokenizer.ggml.merges": None,
    }
    for number, (given, expected) in enumerate([(None, ["▁hi"]), (True, ["▁hi"]), (False, ["hi"])]):
        keys = common | {"tokenizer.ggml.add_space_prefix": given}
        path = write_gguf(tmp_path / f"{number}.gguf", tiny_module("llama"), tiny_tokenizer(), more=More(keys))
        tokenizer = AutoTokenizer.from_pretrained(convert(path))
        assert tokenizer.tokenize("hi") == expected
        assert tokenizer.tokenize("hi hi") == [*expected, "▁hi"]
        assert tokenizer.decode(tokenizer.encode("hi hi", add_special_tokens=False)) == "hi hi"
