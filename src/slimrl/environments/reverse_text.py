"""`reverse-text`: reverse a text character by character, inside <reversed_text> tags.

This is the simplest environment: one question, one answer. A language model reads tokens, not letters, so the style of
the text sets the difficulty (see `STYLES`). The reward is the similarity of the answer to the true reversal, from 0 to
1, and is 0 without the tags.
"""

import difflib
import functools
import random
import string
from collections.abc import Callable, Sequence
from typing import Literal

from slimrl.environments.splits import split_by_hash
from slimrl.errors import UserError
from slimrl.io.text import spans_between
from slimrl.types import Message, Script, Split, Task, Taskset, Turn

Style = Literal["code", "word"]
INSTRUCTION = "Reverse the text character by character. Answer in <reversed_text> tags."
TAGS = "<reversed_text>", "</reversed_text>"
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def code(rng: random.Random, length: int) -> str:
    """Return alternating letters and digits, such as `e9l5g6`. Most tokenizers encode each character as a token, so the
    model sees every character."""
    return "".join(rng.choice(string.digits if i % 2 else string.ascii_lowercase) for i in range(length))


def word(rng: random.Random, length: int) -> str:
    """Return a made-up word, such as `kiligu`. It is hard to reverse: the tokens hide the letters, so the model must
    know how each token is spelled."""
    return "".join(rng.choice(VOWELS if i % 2 else CONSONANTS) for i in range(length))


STYLES: dict[Style, Callable[[random.Random, int], str]] = {"code": code, "word": word}


@functools.lru_cache(maxsize=8)  # a run asks for a split several times
def texts_of(split: Split, style: Style, lengths: tuple[int, int], num: int) -> tuple[str, ...]:
    """Return `num` different texts of a split. `lengths` are the smallest and the largest length. Raise UserError if
    there are too few such texts."""
    rng = random.Random(f"reverse-text/{split}")
    texts: dict[str, None] = {}  # a set that keeps the order
    for _ in range(100 * num):
        text = STYLES[style](rng, rng.randint(*lengths))
        if split_by_hash(text) == split:
            texts[text] = None
        if len(texts) == num:
            return tuple(texts)
    raise UserError(
        f"reverse-text: found only {len(texts)} texts for `num_{split}` = {num}; lower it, or raise `max_length`."
    )


class ReverseText(Taskset):
    """A taskset of made-up texts of `min_length` to `max_length` characters, not counting spaces; all texts differ.

    `style` is `code` (easy) or `word` (hard). The arguments are the `args` of the config's environment.
    """

    def __init__(
        self,
        style: Style = "code",
        min_length: int = 4,
        max_length: int = 8,
        num_train: int = 10_000,
        num_test: int = 1_000,
    ) -> None:
        if not 4 <= min_length <= max_length:
            raise UserError(
                f"reverse-text: needs 4 <= min_length <= max_length, not {min_length} and {max_length} (there are too "
                "few shorter texts to hold some out)."
            )
        self._style = style
        self._lengths = (min_length, max_length)
        self._sizes: dict[Split, int] = {"train": num_train, "test": num_test}

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, the same at every call; `validation` is empty. Raise UserError if too few texts
        have these lengths."""
        if split == "validation":
            return []
        texts = texts_of(split, self._style, self._lengths, self._sizes[split])
        return [Task(id=f"{split}/{text}", data={"text": text}) for text in texts]

    def environment(self, task: Task) -> "ReverseTextEpisode":
        """Return a fresh episode on the task."""
        return ReverseTextEpisode(task.data["text"])

    @property
    def scripts(self) -> dict[str, Script]:
        """The script `expert`, which answers correctly. The supervised warm-up learns from its conversations."""
        return {"expert": self._solve}

    def _solve(self, task: Task, seed: int) -> list[Message]:
        text: str = task.data["text"]
        return [*opening(text), {"role": "assistant", "content": f"<reversed_text>{text[::-1]}</reversed_text>"}]


class ReverseTextEpisode:
    """An episode of one turn: the policy reads a text and answers once."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def start(self) -> list[Message]:
        """Return the messages that the policy reads first."""
        return opening(self._text)

    async def step(self, reply: str) -> Turn:
        """Return the reward of the reply. The first answer in tags counts, without spaces around it."""
        answer = next(spans_between(reply, *TAGS), None)
        target = self._text[::-1]
        given = reply[slice(*answer)].strip() if answer else ""
        similarity = difflib.SequenceMatcher(None, given, target, autojunk=False).ratio() if answer else 0.0
        metrics = {"exact": float(given == target), "tagged": float(answer is not None)}
        return Turn(done=True, reward=similarity, metrics=metrics)


def opening(text: str) -> list[Message]:
    """Return the instruction and the text. The text is a separate message, so that it is tokenized like the answer."""
    return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": text}]
