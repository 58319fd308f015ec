"""`reverse-text`: reverse a text character by character, inside <reversed_text> tags.

The entry-level task. Language models read tokens, not letters, so it matters which texts: see `STYLES`. The reward
is the similarity of the answer and the true reversal, 0 without the tags.
"""

import difflib
import hashlib
import random
import re
import string
from collections.abc import Callable, Sequence

from slimrl.environments.base import Script
from slimrl.errors import UserError, nearest
from slimrl.types import Message, Split, Task, Turn

INSTRUCTION = "Reverse the text character by character. Answer in <reversed_text> tags."
ANSWER = re.compile(r"<reversed_text>(.*?)</reversed_text>", re.DOTALL)
# One text in five is held out, decided by its hash: no text is ever in both splits, whatever the sizes and lengths.
TEST_SHARE = 5
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def code(rng: random.Random, length: int) -> str:
    """Letters and digits in turn, `e9l5g6`: most tokenizers have one token a character, so the model sees them all."""
    return "".join(rng.choice(string.digits if i % 2 else string.ascii_lowercase) for i in range(length))


def spell_text(rng: random.Random, length: int) -> str:
    """A made-up word spelt out, `k i l i g u`: one token a character, and the spaces are right for free."""
    return " ".join(rng.choice(VOWELS if i % 2 else CONSONANTS) for i in range(length))


def word(rng: random.Random, length: int) -> str:
    """A made-up word, `kiligu`: tokens hide the letters, so the model has to know how they are spelt. Hard."""
    return "".join(rng.choice(VOWELS if i % 2 else CONSONANTS) for i in range(length))


STYLES: dict[str, Callable[[random.Random, int], str]] = {"code": code, "spelled": spell_text, "word": word}


class ReverseText:
    """Made-up texts of `min_length` to `max_length` characters (spaces not counted), seeded and distinct.

    `style` is `code`, `spell_text` or `word`, from easy to hard for a model that reads tokens.
    """

    def __init__(
        self,
        style: str = "code",
        min_length: int = 4,
        max_length: int = 8,
        num_train: int = 10_000,
        num_test: int = 1_000,
    ) -> None:
        if style not in STYLES:
            raise UserError(f"reverse-text: there is no style `{style}`.{nearest(style, STYLES)}")
        if not 4 <= min_length <= max_length:
            raise UserError(
                f"reverse-text: needs 4 <= min_length <= max_length, not {min_length} and {max_length} (there are too "
                "few shorter texts to hold some out)."
            )
        self._make = STYLES[style]
        self._lengths = (min_length, max_length)
        self._sizes: dict[Split, int] = {"train": num_train, "test": num_test}

    def tasks(self, split: Split) -> Sequence[Task]:
        """None for `validation`. Raises UserError when there are not that many texts of these lengths."""
        if split == "validation":
            return []
        rng = random.Random(f"reverse-text/{split}")
        texts: dict[str, None] = {}
        for _ in range(100 * self._sizes[split]):
            text = self._make(rng, rng.randint(*self._lengths))
            if split_of(text) == split:
                texts[text] = None
            if len(texts) == self._sizes[split]:
                return [Task(id=f"{split}/{text}", data={"text": text}) for text in texts]
        raise UserError(
            f"reverse-text: found only {len(texts)} texts for `num_{split}` = {self._sizes[split]}; lower it, or raise "
            "`max_length`."
        )

    def environment(self, task: Task) -> "ReverseTextEpisode":
        return ReverseTextEpisode(task.data["text"])

    @property
    def scripts(self) -> dict[str, Script]:
        """An expert, whose conversations the warm-up learns from."""
        return {"expert": self._solve}

    def _solve(self, task: Task, seed: int) -> list[Message]:
        text: str = task.data["text"]
        return [*opening(text), {"role": "assistant", "content": f"<reversed_text>{text[::-1]}</reversed_text>"}]


class ReverseTextEpisode:
    """One text, one answer."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def start(self) -> list[Message]:
        return opening(self._text)

    async def step(self, reply: str) -> Turn:
        answer = ANSWER.search(reply)
        target = self._text[::-1]
        given = answer.group(1).strip() if answer else ""
        similarity = difflib.SequenceMatcher(None, given, target, autojunk=False).ratio() if answer else 0.0
        metrics = {"exact": float(given == target), "tagged": float(answer is not None)}
        return Turn(done=True, reward=similarity, metrics=metrics)


def opening(text: str) -> list[Message]:
    """The question. The text stands alone in its message, so that it is tokenised as the answer's characters are."""
    return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": text}]


def split_of(text: str) -> Split:
    """Which split a text belongs to: a pure function of the text."""
    return "test" if hashlib.sha256(text.encode()).digest()[0] % TEST_SHARE == 0 else "train"
