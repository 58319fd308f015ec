"""Splits a rollout's text into one piece for each token, by the tokenizer that the run has saved.

A character whose bytes are spread over several tokens belongs to the last one; the pieces of the others are empty.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from slimrl.errors import UserError
from slimrl.io.regular_file import read_regular

FILE = "tokenizer.json"
MAX_BYTES = 256 * 2**20


def find_tokenizer(run: Path) -> Path | None:
    """Return the file of a run's tokenizer: its own, or the one beside the newest saved weights; None without one."""
    weights = (path for path in (run / "weights").glob("step_*") if path.name[5:].isdecimal())
    newest_first = sorted(weights, key=lambda path: -int(path.name[5:]))
    places = [run / "tokenizer", *newest_first]
    return next((place / FILE for place in places if (place / FILE).is_file()), None)


class Pieces:
    """A tokenizer for the text of each single token."""

    def __init__(self, path: Path) -> None:
        """Read a tokenizer's file. Raises UserError if it is malformed."""
        try:
            self._tokenizer = Tokenizer.from_str(read_regular(path, MAX_BYTES).decode("utf-8", "replace"))
        except Exception as error:  # the library does not define an exception type
            raise UserError(f"{path} cannot be read as a tokenizer: {error}") from None
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(number for number, token in added.items() if token.special)

    def split(self, token_ids: Sequence[int]) -> list[str]:
        """Return the piece of each token; joined they are the text. The library holds incomplete characters back."""
        stream = DecodeStream(skip_special_tokens=False)
        pieces = [stream.step(self._tokenizer, token) or "" for token in token_ids]
        whole, so_far = self._tokenizer.decode([*token_ids], skip_special_tokens=False), "".join(pieces)
        if pieces and whole.startswith(so_far):
            pieces[-1] += whole[len(so_far) :]
        return pieces


@lru_cache(maxsize=4)
def pieces_of(path: Path, mtime: float) -> Pieces:
    """Return the tokenizer of a file, cached by the file's time of change."""
    return Pieces(path)
