"""Encodes rendered conversations, in which a message's control tokens are text, as a whole or behind what stands there.

Control tokens are those that the tokenizer marks as special or that separate turns. Only the template and the policy
produce them: where a message or a tool's description spells one (a web page that says `<|im_end|>`), its characters are
encoded as text, so that no message can forge a turn. Added tokens that are part of a text (`<think>` and `<tool_call>`
of Qwen3) are encoded as tokens everywhere. Where a template separates turns by plain text, a message can still forge
one.
"""

import functools
import re
from collections.abc import Iterable
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.errors import UserError

# Texts that a following one hardly ever shares a token with.
NEUTRAL = ("\n", "x")


class TextEncoder:
    """The token ids of texts in which `mark` has marked the control tokens that a message spells."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._control = _pattern([])

    def protect(self, tokens: Iterable[str]) -> None:
        """Take these as the control tokens from now on."""
        self._control = _pattern(tokens)

    def mark(self, content: Any) -> Any:
        """A text, or a structure of texts, with marks around every control token that it spells, for `encode`.

        The marks are two private-use characters, which are removed from texts that contain them.
        """
        return _templates().mark_control_tokens(content, self._control)

    def unmark(self, text: str) -> str:
        """The text without marks."""
        return text.translate(dict.fromkeys(map(ord, _marks())))

    def encode(self, text: str) -> list[int]:
        """The token ids of a rendered text. Marked control tokens are encoded as plain text.

        No special tokens are added: the template writes them all, the first one included.
        """
        # The shortcut matters: the other branch loops over all added tokens, and some tokenizers have thousands.
        if _marks()[0] not in text:
            return cast(list[int], self._tokenizer.encode(text, add_special_tokens=False))
        try:
            return cast(list[int], _templates().encode_marked_chat(self._tokenizer, text))
        except ValueError as error:
            raise UserError(f"A message cannot be written for {self._tokenizer.name_or_path}: {error}.") from error

    def encode_behind(self, before: str, text: str) -> list[int]:
        """The token ids that the text has behind another one, whose own token ids stay as they are.

        Many tokenizers write a space in front of every text that they are given, which is none of a text within a
        conversation. So both are encoded together, and the other's token ids are taken off. Where a token would reach
        over the border, the text is encoded behind a neutral one.
        """
        for context in (before, *NEUTRAL):
            head, both = self.encode(context), self.encode(context + text)
            if both[: len(head)] == head:
                return both[len(head) :]
        return self.encode(text)

    def last_segment(self, text: str) -> str:
        """The text from its last control token on; all that can decide about the token ids of what follows."""
        places = [match.start() for match in self._control.finditer(text)]
        return text[places[-1] :] if places else text


def _templates() -> Any:
    """The module of transformers that marks control tokens.

    It is imported on first use: SLIME's contract tests replace transformers by a stub of few names, with which this
    module must load.
    """
    from transformers.utils import chat_template_utils

    return chat_template_utils


@functools.cache
def _marks() -> str:
    """The characters that transformers puts before and after a marked control token."""
    return cast(str, _templates().mark_control_tokens("x", re.compile("x"))).replace("x", "")


def _pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of these tokens, the longest first; it never matches if there are none."""
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)")
