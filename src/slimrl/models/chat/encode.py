"""Encodes rendered conversations to token ids. Control tokens in a message are encoded as text.

Control tokens are the tokens that the tokenizer marks as special or that separate turns. Only the template and the
policy produce them. If a message or a tool's description contains the characters of a control token (a web page with
`<|im_end|>`), they are encoded as text, so that no message can forge a turn. Other added tokens (`<think>` and
`<tool_call>` of Qwen3) are part of a text, and are encoded as tokens everywhere. If a template separates turns by plain
text, a message can still forge a turn.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.errors import UserError

# Texts that rarely share a token with the text after them.
NEUTRAL = ("\n", "x")
# Private-use characters around a control token in a message. If a message contains these characters, they are removed.
OPEN, CLOSE = "\U000f0000", "\U000f0001"
MARKS = re.compile(f"[{OPEN}{CLOSE}]")


class TextEncoder:
    """An encoder of texts to token ids. Before messages are rendered, `mark` must mark the control tokens in them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.protect([])

    def protect(self, tokens: Iterable[str]) -> None:
        """Set the control tokens to `tokens`."""
        self._control = _pattern(tokens)
        # A template can separate the two marks of a token. Then each mark is removed, but the texts around it are still
        # encoded separately.
        self._marked = re.compile(f"{OPEN}({self._control.pattern}){CLOSE}|{MARKS.pattern}")

    def mark(self, content: Any) -> Any:
        """Return a text, or a structure of texts, with marks around every control token. `encode` reads these marks.

        The marks are two private-use characters. If a text already contains such characters, they are removed first.
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
        """Return the text without marks."""
        return MARKS.sub("", text)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a rendered text. Marked control tokens are encoded as plain text.

        No special tokens are added: the template writes all special tokens, including the first one. Raises UserError
        if the tokenizer encodes the characters of a marked token as the control token itself.
        """
        if not MARKS.search(text):
            return self._encode_rendered(text)
        # Texts and marked tokens alternate. For a mark without its partner, the token is None.
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
        """Return the token ids of a text without recognising added tokens. Only the later steps of the tokenizer run:
        the normalizer, the pre-tokenizer and the model."""
        backend = cast(Any, self._tokenizer).backend_tokenizer
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = [text]
        if backend.pre_tokenizer is not None:
            words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for word in words for token in backend.model.tokenize(word)]

    def encode_behind(self, before: str, text: str) -> list[int]:
        """Return the token ids of `text` if it follows `before` in a conversation, without the token ids of `before`.

        Many tokenizers put a space in front of every text, which is wrong within a conversation. So both texts are
        encoded together, and the token ids of `before` are removed. If a token would span both texts, `text` is encoded
        after a neutral text instead.
        """
        return _encode_behind(self.encode, (before, *NEUTRAL), text)

    def last_segment(self, text: str) -> str:
        """Return the part of a text from its last control token to its end. Earlier parts do not affect the token ids
        of a text that follows."""
        places = [match.start() for match in self._control.finditer(text)]
        return text[places[-1] :] if places else text


def decode_with_marks(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], shown: Collection[int]) -> str:
    """Return the text of token ids without special tokens, except those in `shown`."""
    runs = groupby(token_ids, key=shown.__contains__) if shown else [(False, token_ids)]
    return "".join(
        cast(str, tokenizer.decode(list(run), skip_special_tokens=not shows, clean_up_tokenization_spaces=False))
        for shows, run in runs
    )


def _encode_behind(encode: Callable[[str], list[int]], contexts: Sequence[str], text: str) -> list[int]:
    """Encode the text together with a context in front of it, and return the ids of the text alone. The context is the
    first of `contexts` whose token ids stay the same when the text follows. If none qualifies, encode the text
    alone."""
    for context in contexts:
        head, both = encode(context), encode(context + text)
        if both[: len(head)] == head:
            return both[len(head) :]
    return encode(text)


def _pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of these tokens, the longest first. Without tokens, the pattern matches
    nothing."""
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)")
