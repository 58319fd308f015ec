"""A chat format without a model: ChatML on single bytes, with tools in the form of Qwen's templates.

It accepts every text and all four roles, and needs no download. A token is a byte.
"""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from slimrl.models.chat.template import ChatFormat

START, END = "<|im_start|>", "<|im_end|>"


def stand_in_chat() -> ChatFormat:
    """Build the ChatML format, in which every byte is a token."""
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate([END, START, *characters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return ChatFormat(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            eos_token=END,
            additional_special_tokens=[START],
            clean_up_tokenization_spaces=False,
            chat_template=Path(__file__).with_name("stand_in.jinja").read_text(encoding="utf-8"),
            name_or_path="ChatML",
        )
    )
