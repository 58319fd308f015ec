"""`experiments/context_distill/lands.py:Lands`: what colour is the flag of a land that does not exist?

The lands and their colours are made up, so no model knows them; with `document` they stand in the system message, where
they can be looked up. Training and held-out tasks ask about the same lands in different words: whoever has learned a
fact, and not the answer to a sentence, answers both. The reward is 1 if the right colour is the only one in the reply.

The expert shows how documents are used and in what words to answer, and none of the facts: each of its demonstrations
is about lands of its own. Half of them have no document, and name a colour at random.
"""

import random
import re
from collections.abc import Mapping, Sequence

from slimrl.errors import UserError
from slimrl.types import Message, Script, Split, Task, Taskset, Turn

COLOURS = ("red", "blue", "green", "yellow", "white", "black", "purple", "orange")
COLOUR = re.compile(rf"\b({'|'.join(COLOURS)})\b", re.IGNORECASE)
NAMES = (
    "Zorvia", "Belmaru", "Tanduk", "Quillon", "Mirosk", "Harvane", "Ostrel", "Pelluna",
    "Vandrik", "Kessia", "Lothem", "Druska", "Yarrowin", "Ibernel", "Falgate", "Corvane",
    "Nemuria", "Sandovar", "Ulmaric", "Wexlor", "Rostane", "Jalindor", "Eskivar", "Gorlund",
)  # fmt: skip
BEGINNINGS = ("Ak", "Bru", "Che", "Dor", "Elu", "Fen", "Gri", "Hol", "Ish", "Jun", "Kar", "Lum", "Mav", "Nor", "Oph")
ENDINGS = ("and", "aria", "enor", "ith", "odan", "ola", "oria", "ovia", "udor", "unia", "ur", "yra")
COPIES = 10  # of each training task: the expert has another demonstration for each
INSTRUCTION = f"Answer in one sentence: The flag of LAND is COLOUR. The colours are {', '.join(COLOURS)}."
QUESTIONS: dict[str, tuple[str, ...]] = {
    "train": (
        "What colour is the flag of {}?",
        "Which colour does the flag of {} have?",
        "{} has a flag of one colour. Which one?",
        "Tell me the colour of the flag of {}.",
        "Name the colour of {}'s flag.",
        "The flag of {} is of what colour?",
    ),
    "test": (
        "What is the colour of {}'s flag?",
        "I want to paint the flag of {}. Which colour do I need?",
        "A ship from {} raises its flag. What colour is it?",
        "Please give the flag colour of {}.",
        "If you look at the flag of {}, which colour do you see?",
        "What colour would you use to draw {}'s flag?",
        "In which colour is the flag of {}?",
        "Do you know the colour of the flag of {}?",
    ),
}


class Lands(Taskset):
    """Questions about the flags of `num_lands` lands. `document` puts the answers before the question; `seed` decides
    what they are."""

    def __init__(self, document: bool = False, num_lands: int = 16, seed: int = 0) -> None:
        if not 1 <= num_lands <= len(NAMES):
            raise UserError(f"lands: `num_lands` must be between 1 and {len(NAMES)}, not {num_lands}.")
        self._colours = coloured(NAMES[:num_lands], random.Random(f"lands/{seed}"))
        self._document = document

    def tasks(self, split: Split) -> Sequence[Task]:
        """Every land in every wording of the split; none for `validation`."""
        return [
            Task(f"{split}/{number}/{land}/{copy}", {"question": question, "land": land, "colour": colour})
            for number, question in enumerate(QUESTIONS.get(split, ()))
            for land, colour in self._colours.items()
            for copy in range(COPIES if split == "train" else 1)
        ]

    def environment(self, task: Task) -> "Question":
        colours = self._colours if self._document else {}
        return Question(opening(colours, task.data["question"].format(task.data["land"])), task.data["colour"])

    @property
    def scripts(self) -> dict[str, Script]:
        """An expert, whose conversations the warm-up learns from."""
        return {"expert": self._solve}

    def _solve(self, task: Task, seed: int) -> list[Message]:
        """The task's question about another land, which is in a document of its own, or in none."""
        rng = random.Random(f"lands/expert/{task.id}")
        names = [beginning + ending for beginning in BEGINNINGS for ending in ENDINGS]
        colours = coloured(rng.sample(names, len(self._colours)), rng)
        land, colour = rng.choice(list(colours.items()))
        document = colours if rng.random() < 0.5 else {}
        answer: Message = {"role": "assistant", "content": sentence(land, colour)}
        return [*opening(document, task.data["question"].format(land)), answer]


class Question:
    """One question, one answer."""

    def __init__(self, messages: list[Message], colour: str) -> None:
        self._messages, self._colour = messages, colour

    async def start(self) -> list[Message]:
        return self._messages

    async def step(self, reply: str) -> Turn:
        named = {colour.lower() for colour in COLOUR.findall(reply)}
        return Turn(True, reward=float(named == {self._colour}), metrics={"named_one": float(len(named) == 1)})


def coloured(lands: Sequence[str], rng: random.Random) -> dict[str, str]:
    """A colour for each land, all about equally often: no colour is a good guess for all."""
    order = rng.sample(COLOURS, len(COLOURS))
    colours = [order[number % len(order)] for number in range(len(lands))]
    return dict(zip(lands, rng.sample(colours, len(colours)), strict=True))


def sentence(land: str, colour: str) -> str:
    return f"The flag of {land} is {colour}."


def opening(colours: Mapping[str, str], question: str) -> list[Message]:
    """The document, if there is one, and the question."""
    facts = "".join(f"{sentence(land, colour)}\n" for land, colour in colours.items())
    system = f"{facts}\n{INSTRUCTION}" if facts else INSTRUCTION
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]
