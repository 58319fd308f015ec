"""Encodes rendered conversations, in which a message's control tokens are text, as a whole or behind what stands there.

Control tokens are those that the tokenizer marks as special or that separate turns. Only the template and the policy
produce them: where a message or a tool's description spells one (a web page that says `<|im_end|>`), its characters are
encoded as text, so that no message can forge a turn. Added tokens that are part of a text (`<think>` and `<tool_call>`
of Qwen3) are encoded as tokens everywhere. Where a template separates turns by plain text, a message can still forge
one.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.errors import UserError

# Texts that a following one hardly ever shares a token with.
NEUTRAL = ("\n", "x")
# Private-use characters around a control token that a message spells; a message's own are removed.
OPEN, CLOSE = "\U000f0000", "\U000f0001"
MARKS = re.compile(f"[{OPEN}{CLOSE}]")


class TextEncoder:
    """The token ids of texts in which `mark` has marked the control tokens that a message spells."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.protect([])

    def protect(self, tokens: Iterable[str]) -> None:
        """Take these as the control tokens from now on."""
        self._control = _pattern(tokens)
        # A template can part the marks of a token; a lone mark is removed, and still separates the texts around it.
        self._marked = re.compile(f"{OPEN}({self._control.pattern}){CLOSE}|{MARKS.pattern}")

    def mark(self, content: Any) -> Any:
        """A text, or a structure of texts, with marks around every control token that it spells, for `encode`.

        The marks are two private-use characters, which are removed from texts that contain them.
        """
        match content:
            case str():
                return self._control.sub(rf"{OPEN}\g<0>{CLOSE}", self.unmark(content))
            case dict():
                return {key: self.mark(value) for key, value in content.items()}
            case list() | tuple():
                return [self.mark(value) for value in content]
        return content

    def unmark(self, text: str) -> str:
        """The text without marks."""
        return MARKS.sub("", text)

    def encode(self, text: str) -> list[int]:
        """The token ids of a rendered text. Marked control tokens are encoded as plain text.

        No special tokens are added: the template writes them all, the first one included. Raises UserError for a
        tokenizer that makes a control token of plain text.
        """
        if not MARKS.search(text):
            return self._encode_rendered(text)
        # Texts and marked tokens alternate; a lone mark leaves None in a token's place.
        first, *pieces = self._marked.split(text)
        token_ids = self._encode_rendered(first)
        for index, piece in enumerate(pieces):
            if not piece:
                continue
            if index % 2:
                token_ids += _encode_behind(self._encode_rendered, NEUTRAL, piece)
                continue
            spelled = _encode_behind(self._encode_spelled, NEUTRAL, piece)
            if self._tokenizer.convert_tokens_to_ids(piece) in spelled:
                name = self._tokenizer.name_or_path
                raise UserError(f"A message cannot be written for {name}: it has {piece!r} as plain text, too.")
            token_ids += spelled
        return token_ids

    def _encode_rendered(self, text: str) -> list[int]:
        return cast(list[int], self._tokenizer.encode(text, add_special_tokens=False))

    def _encode_spelled(self, text: str) -> list[int]:
        """The token ids of a text in which nothing counts as an added token: the steps behind those."""
        backend = cast(Any, self._tokenizer).backend_tokenizer
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = [text]
        if backend.pre_tokenizer is not None:
            words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for word in words for token in backend.model.tokenize(word)]

    def encode_behind(self, before: str, text: str) -> list[int]:
        """The token ids that the text has behind another one, whose own token ids stay as they are.

        Many tokenizers write a space in front of every text that they are given, which is none of a text within a
        conversation. So both are encoded together, and the other's token ids are taken off. Where a token would reach
        over the border, the text is encoded behind a neutral one.
        """
        return _encode_behind(self.encode, (before, *NEUTRAL), text)

    def last_segment(self, text: str) -> str:
        """The text from its last control token on; all that can decide about the token ids of what follows."""
        places = [match.start() for match in self._control.finditer(text)]
        return text[places[-1] :] if places else text


def _encode_behind(encode: Callable[[str], list[int]], contexts: Sequence[str], text: str) -> list[int]:
    """The token ids of the text behind the first of the contexts whose own token ids stay as they are."""
    for context in contexts:
        head, both = encode(context), encode(context + text)
        if both[: len(head)] == head:
            return both[len(head) :]
    return encode(text)


def _pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of these tokens, the longest first; it never matches if there are none."""
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)")
