"""The tokenizer of SLIME's `--hf-checkpoint`, loaded once for a process: it is slow, and each sample needs it."""

from functools import cache
from typing import Any

from transformers import AutoTokenizer

from slimrl.errors import UserError


@cache
def tokenizer_of(hf_checkpoint: str) -> Any:
    """The tokenizer of a checkpoint. Raises UserError where none can be loaded."""
    try:
        return AutoTokenizer.from_pretrained(hf_checkpoint, trust_remote_code=False)
    except Exception as error:  # tokenizers raises plain `Exception`; in each case the directory needs mending
        raise UserError(
            f"slime: no tokenizer could be loaded from --hf-checkpoint {hf_checkpoint}: {type(error).__name__}: {error}"
        ) from error


def without_end(text: str, hf_checkpoint: str) -> str:
    """A reply without the special tokens at its end, such as `<|im_end|>`. SGLang leaves them there by SLIME's defaults
    (`skip_special_tokens` off, `no_stop_trim` on)."""
    ends = tuple(tokenizer_of(hf_checkpoint).all_special_tokens)
    while text.endswith(ends):
        text = next(text.removesuffix(end) for end in ends if text.endswith(end))
    return text
