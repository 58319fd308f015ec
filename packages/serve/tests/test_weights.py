"""New weights must match the served model in every tensor, or they are refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from slimrl.errors import UserError
from slimrl_serve.weights import read_weights
from tests.models.test_resolve import LEFT_BEHIND
from tests.tiny import tiny_module

EMBEDDING, HEAD, BUFFER = "model.embed_tokens.weight", "lm_head.weight", "model.rotary_emb.inv_freq"


def saved(directory: Path, **changes: torch.Tensor) -> Path:
    """The weights of a module whose head is its embedding, with some of them replaced or added."""
    module = tiny_module("qwen3")
    tensors = dict(module.named_parameters()) | dict(changes)
    save_file({name: tensor.detach().clone() for name, tensor in tensors.items()}, directory / "model.safetensors")
    return directory


def test_the_second_name_of_a_weight_may_be_there_or_not(tmp_path: Path) -> None:
    module = tiny_module("qwen3")
    names = {name for name, _ in module.named_parameters()}
    assert HEAD not in names
    assert set(read_weights(saved(tmp_path), module)) == names
    new = module.get_parameter(EMBEDDING) + 1
    read = read_weights(saved(tmp_path, **{EMBEDDING: new, HEAD: new}), module)
    assert set(read) == names
    assert torch.equal(read[EMBEDDING], new)


def test_the_second_name_of_a_weight_cannot_hold_other_numbers(tmp_path: Path) -> None:
    module = tiny_module("qwen3")
    with pytest.raises(UserError, match=f"{HEAD} .* differs"):
        read_weights(saved(tmp_path, **{HEAD: module.get_parameter(EMBEDDING) + 1}), module)


@pytest.mark.slow
@pytest.mark.parametrize(("index", "content"), LEFT_BEHIND)
def test_an_index_that_was_left_behind_does_not_count(tmp_path: Path, index: str, content: str) -> None:
    module = tiny_module("qwen3")
    (saved(tmp_path) / index).write_text(content)
    assert len(read_weights(tmp_path, module)) == len(list(module.parameters()))


def test_a_buffer_must_be_the_modules_own(tmp_path: Path) -> None:
    module = tiny_module("qwen3")
    buffer = module.get_buffer(BUFFER)
    assert BUFFER not in read_weights(saved(tmp_path, **{BUFFER: buffer}), module)
    with pytest.raises(UserError, match=f"{BUFFER} .* differs"):
        read_weights(saved(tmp_path, **{BUFFER: buffer * 2}), module)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_numbers_that_are_none_are_refused(tmp_path: Path, number: float) -> None:
    module = tiny_module("qwen3")
    broken = module.get_parameter(EMBEDDING).detach().clone()
    broken[3, 5] = number
    with pytest.raises(UserError, match=f"{EMBEDDING} .* NaN or infinite"):
        read_weights(saved(tmp_path, **{EMBEDDING: broken}), module)
