"""The tiny models that tests use are what they claim to be."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tiny import FAMILIES, tiny_model_dir


@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_model_loads_with_plain_transformers(tmp_path: Path, family: str) -> None:
    directory = tiny_model_dir(tmp_path, family)
    module = AutoModelForCausalLM.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "42 é\n"}], tokenize=False)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text == "<|im_start|>user\n42 é\n<|im_end|>\n"
    assert len(tokenizer) == module.config.vocab_size == 300
    assert tokenizer.eos_token_id == module.generation_config.eos_token_id == 2
    assert torch.isfinite(module(torch.tensor([ids])).logits).all()
