"""Turns token ids into text, all at once or while they arrive.

A character may be spread over several tokens, and a stop string over many. So `GrowingText` only shows text that later
tokens cannot change. With the stop string "END" and the tokens "x", " E", "N", "o" it shows "x", "x ", "x " and "x
ENo": the start of a stop string is held back until it is completed or ruled out. One thread may read a `GrowingText`
while another thread extends it.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.inference.sampling import Top
from slimrl.io.text import partial_mark_length
from slimrl.models.chat.encode import decode_with_marks

Score = tuple[int, float, Top]  # a token, its log-probability, and the most likely tokens at its position
BROKEN = "\ufffd"  # the text of an incomplete character


class Vocabulary:
    """Translates between text and token ids. Texts show the special tokens in `shown`, which are marks around calls of
    tools."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, num_tokens: int, shown: Set[int] = frozenset()) -> None:
        self._tokenizer: Any = tokenizer
        self._strings: dict[int, str] = {}
        self._shown = shown
        self.num_tokens = num_tokens
        self.longest_token = max(map(len, tokenizer.get_vocab()))  # in characters: no token covers more of a text

    def encode(self, text: str, add_special: bool) -> list[int]:
        """Return the token ids of a text."""
        return cast(list[int], self._tokenizer.encode(text, add_special_tokens=add_special))

    def decode(self, token_ids: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of token ids."""
        if skip_special:
            return decode_with_marks(self._tokenizer, token_ids, self._shown)
        text = self._tokenizer.decode(list(token_ids), clean_up_tokenization_spaces=False)
        return cast(str, text)

    def token_text(self, token: int) -> str:
        """Return the text of a token; an incomplete character is `BROKEN`, as in vLLM."""
        if token not in self._strings:
            text = self.decode([token], skip_special=False)
            piece = cast(str | None, self._tokenizer.convert_ids_to_tokens(token)) or ""
            # Decoding strips the space before the first word.
            strips_space = piece.startswith("\u2581") and not text.startswith(" ")
            self._strings[token] = f" {text}" if strips_space else text
        return self._strings[token]


@dataclass(frozen=True, slots=True)
class TokenNames:
    """Writes tokens as text, or as `token_id:17` if `as_ids`."""

    vocabulary: Vocabulary
    as_ids: bool = False

    def name(self, token: int) -> str:
        return f"token_id:{token}" if self.as_ids else self.vocabulary.token_text(token)

    def chat_logprobs(self, scores: Sequence[Score]) -> dict[str, Any]:
        """Return the `logprobs` of a chat's tokens."""

        def entry(token: int, logprob: float) -> dict[str, Any]:
            text = self.vocabulary.token_text(token)
            # The bytes of a token that is a part of a character are unknown here.
            spelled = None if "\ufffd" in text else list(text.encode())
            return {"token": self.name(token), "logprob": logprob, "bytes": spelled}

        content = []
        for token, logprob, top in scores:
            content.append(entry(token, logprob) | {"top_logprobs": [entry(*pair) for pair in top]})
        return {"content": content}


class GrowingText:
    """The text of a sequence that is being sampled, up to the first stop string.

    `settled` is the text that later tokens cannot change. `end` is the position where a stop string cuts the text, or
    -1 if none was found yet.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stop: Sequence[str] = (),
        include_stop: bool = False,
    ) -> None:
        self._decode = decode
        self._stop = stop
        self._include_stop = include_stop
        self._start = 0  # the first token of the window that is decoded with every new token
        self._read = 0  # the token at which the window starts after its next move
        self._known = 0  # settled characters of the window
        self.settled = ""
        self.end = -1

    def is_finished(self, token_ids: list[int]) -> bool:
        """Extend the text to the sequence so far, and return True if a stop string was found. The engine calls this for
        every token."""
        self.grow(token_ids)
        return self.end >= 0

    def grow(self, token_ids: Sequence[int], closed: bool = False) -> None:
        """Extend the text to the sequence so far. `closed` is True if the sequence is complete."""
        # The tokens before `_read` are decoded again, since some tokens have another text at the start of a sequence.
        text = self._decode(token_ids[self._start :])
        # Trailing replacement characters may become a character with the next token.
        held = 0 if closed else len(text) - len(text.rstrip(BROKEN))
        new = text[self._known : len(text) - held]
        self._known += len(new)
        # The window moves on to whole characters, because decoding everything would take quadratic time.
        if new and not held:
            self._start, self._read = self._read, len(token_ids)
            self._known = len(self._decode(token_ids[self._start :]))
        if new and self.end < 0:
            # `end` is set before `settled`, so that a reader in another thread may see less, but never the stop string.
            if self._stop:
                self.end = self._find_end(self.settled + new, len(self.settled))
            self.settled += new

    def visible(self, closed: bool = False) -> str:
        """Return the text that may be shown, up to a stop string. Unless `closed`, omit an ending that may be the start
        of a stop string."""
        settled = self.settled
        if self.end >= 0:
            return settled[: self.end]
        return settled if closed else settled[: len(settled) - partial_mark_length(settled, self._stop)]

    def _find_end(self, text: str, known: int) -> int:
        """Return the position at which a stop string ends the text; -1 without a stop string. If the text has several,
        the one that is complete first counts. None is complete in the first `known` characters."""
        # A stop string may start in the known part, but not be complete there.
        starts = [(stop, text.find(stop, max(0, known - len(stop) + 1))) for stop in self._stop]
        found = [(start + len(stop), start) for stop, start in starts if start >= 0]
        if not found:
            return -1
        behind, start = min(found)
        return behind if self._include_stop else start
