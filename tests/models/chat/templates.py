"""Chat templates like those of the well-known model families, and tokenizers with their special tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from slimrl.types import Message
from tests.tiny import CHATML, tiny_tokenizer

HERE = Path(__file__).parent / "jinja"


def template(name: str) -> str:
    """The chat template in a file of the directory `jinja`."""
    return (HERE / f"{name}.jinja").read_text(encoding="utf-8")


NAMES = ("default-system", "llama2", "llama3", "gemma", "mistral", "phi3", "zephyr", "plain", "tools")
DEFAULT_SYSTEM, LLAMA2, LLAMA3, GEMMA, MISTRAL, PHI3, ZEPHYR, PLAIN, TOOLS = map(template, NAMES)
TEMPLATES = {
    "chatml": CHATML,
    "default-system": DEFAULT_SYSTEM,
    "llama3": LLAMA3,
    "gemma": GEMMA,
    "qwen3": template("qwen3-short"),  # without tools
    "mistral": MISTRAL,
    "plain": PLAIN,
    "tools": TOOLS,  # in the manner of Qwen2.5: tools in the system message, results of one turn in one user message
}
SPECIAL = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "<eos>"]
END_OF_TURN = {"llama3": "<|eot_id|>", "gemma": "<end_of_turn>", "mistral": "<eos>", "plain": "<eos>"}


def message(role: Any) -> Callable[[str], Message]:
    """A function that makes a message in this role of its content."""
    return lambda content: {"role": role, "content": content}


user, assistant, result, system = map(message, ("user", "assistant", "tool", "system"))


def templated_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """A tiny tokenizer with one of `TEMPLATES`; as in the real families, eos is not always the end of a turn."""
    tokenizer = tiny_tokenizer(chat_template=TEMPLATES[name])
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL}, replace_extra_special_tokens=False)
    if name in ("gemma", "mistral", "plain"):
        tokenizer.eos_token = "<eos>"
    return tokenizer
