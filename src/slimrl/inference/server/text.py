"""Token ids as text, whole or as they come. Knows nothing of HTTP, requests or models.

A character may be spread over several tokens, and a stop string over many: `GrowingText` gives out only what no later
token can change. Read from one thread while another grows it, it never shows part of a stop string.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from slimrl.io.text import partial_mark_length

BROKEN = "\ufffd"  # what incomplete characters decode to
WINDOW = 24  # tokens decoded again with every new one, at most, unless they are one long run that is no text yet
OVERLAP = 8
LONGEST = 4  # bytes of a character


class Vocabulary:
    """A tokenizer seen from outside: text to token ids, token ids to text, one token to its bytes."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, num_tokens: int) -> None:
        self._tokenizer: Any = tokenizer
        self._byte_of = _byte_alphabet()
        self._strings: dict[int, str] = {}
        self._bytes: dict[int, bytes] = {}
        self.num_tokens = num_tokens
        self.longest_token = max(map(len, tokenizer.get_vocab()))  # in characters: no token covers more of a text

    def encode(self, text: str, add_special: bool) -> list[int]:
        return cast(list[int], self._tokenizer.encode(text, add_special_tokens=add_special))

    def decode(self, token_ids: Sequence[int], skip_special: bool = True) -> str:
        text = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return cast(str, text)

    def decoder(self, skip_special: bool) -> Callable[[Sequence[int]], str]:
        return lambda token_ids: self.decode(token_ids, skip_special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; part of a character where the character has several tokens."""
        if token not in self._bytes:
            self._bytes[token] = self._find_bytes(token)
        return self._bytes[token]

    def token_text(self, token: int) -> str:
        """The token as text; one that is no whole character as `bytes:\\xe2\\x82`, as OpenAI writes it."""
        if token not in self._strings:
            raw = self.token_bytes(token)
            try:
                self._strings[token] = raw.decode()
            except UnicodeDecodeError:
                self._strings[token] = "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
        return self._strings[token]

    def _find_bytes(self, token: int) -> bytes:
        text = self.decode([token], skip_special=False)
        piece = cast(str | None, self._tokenizer.convert_ids_to_tokens(token)) or ""
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">") and piece != text:  # byte fallback
            return bytes([int(piece[3:5], 16)])
        if BROKEN in text and all(character in self._byte_of for character in piece):
            return bytes(self._byte_of[character] for character in piece)
        if piece.startswith("\u2581") and not text.startswith(" "):
            text = f" {text}"  # decoding takes the space off the first word
        return text.encode()


class GrowingText:
    """The text of a sequence that is being sampled, and where a stop string ends it.

    `settled` is text that later tokens cannot change; `end` is -1 until a stop string ends the text, at that character.
    The first `min_tokens` tokens complete no stop string.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stop: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._decode = decode
        self._stop = stop
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._start = 0  # of the window that is decoded again and again
        self._given = 0  # characters of the window's text that are settled
        self.settled = ""
        self.end = -1

    def finished(self, token_ids: list[int]) -> bool:
        """Take the sequence so far; whether it contains a stop string. The engine asks this after every token."""
        self.grow(token_ids)
        return self.end >= 0

    def grow(self, token_ids: Sequence[int], closed: bool = False) -> None:
        """Take the sequence so far; `closed` says that it is the whole."""
        window = token_ids[self._start :]
        text = self._decode(window)
        held = 0 if closed else len(text) - len(text.rstrip(BROKEN))
        new = text[self._given : len(text) - held]
        self._given = max(self._given, len(text) - held)
        if new and self.end < 0:
            # `end` before `settled`: a reader in between then sees less, never the stop string.
            if self._stop and len(token_ids) >= self._min_tokens:
                self.end = self._find_end(self.settled + new, len(self.settled))
            self.settled += new
        if len(window) > WINDOW:
            self._move_window(token_ids, text, held)

    def visible(self, closed: bool = False) -> str:
        """What may be shown: up to the stop string, and nothing that might yet become one."""
        settled = self.settled
        if self.end >= 0:
            return settled[: self.end]
        return settled if closed else settled[: len(settled) - partial_mark_length(settled, self._stop)]

    def _find_end(self, text: str, known: int) -> int:
        """Where the text ends, by the stop string that is complete first behind the `known` characters; -1 if none."""
        found = []
        for stop in self._stop:
            start = text.find(stop, max(0, known - len(stop) + 1))
            if start >= 0:
                found.append((start + len(stop), start))
        if not found:
            return -1
        behind, start = min(found)
        return behind if self._include_stop else start

    def _move_window(self, token_ids: Sequence[int], text: str, held: int) -> None:
        """Begin the window later, where no character is cut: what is decoded from there ends as the text does now."""
        if self._given > len(text) - held:
            return  # the last character is incomplete, and makes all before it in its run of byte tokens look broken
        for start in range(len(token_ids) - OVERLAP, len(token_ids) - OVERLAP - LONGEST, -1):
            tail = self._decode(token_ids[start:])
            if len(tail) > held and text.endswith(tail):
                self._start, self._given = start, len(tail) - held
                return


def _byte_alphabet() -> dict[str, int]:
    """The characters by which byte-level tokenizers write bytes: printable ones stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
