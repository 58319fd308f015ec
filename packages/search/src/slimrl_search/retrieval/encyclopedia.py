"""Generates a fictional encyclopedia of any size: pages about entities with consistent, linked facts, and questions.

The seed and an entity's number determine all facts about the entity. So pages can be generated one by one, and a page
can repeat the facts of another page without reading that page. These entities are in no model's training data, so a
model must look up the answers. The texts are in `encyclopedia.toml`.
"""

import random
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl_search.retrieval.pages import Page, Question

KINDS: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
# The kinds of ten consecutive pages.
CYCLE = ("person", "town", "person", "company", "person", "book", "town", "river", "prize", "street")
SMALLEST = len(CYCLE)
PLACES = {kind: [place for place, name in enumerate(CYCLE) if name == kind] for kind in KINDS}
ONSETS = ("b", "br", "d", "dr", "f", "g", "gl", "h", "k", "kr", "l", "m", "n", "p", "r", "s", "fl", "t", "tr", "v", "z")
# A name can be split into syllables in only one way, so different syllables give different names. The reason is that
# a coda and the consonants after it never form an onset together.
VOWELS = ("a", "e", "i", "o", "u", "ae", "ia", "ou")
CODAS = ("", "l", "n", "r", "s", "th", "m")
SYLLABLES = tuple(onset + vowel + coda for onset in ONSETS for vowel in VOWELS for coda in CODAS)
SHUFFLE = 362_437  # coprime to len(SYLLABLES) ** 2, so multiplication by it modulo that square is a permutation
EXHAUSTED = 300  # after this many repeated questions in a row, no new ones are expected


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity with its values by name, and the kind of its page. `facts` are (question, answer, section) triples."""

    values: Mapping[str, str]
    kind: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The title of the entity's page."""
        return self.values["title"]

    @property
    def facts(self) -> list[tuple[str, str, str]]:
        """The facts that questions may ask for. `{}` in a question stands for the entity."""
        known = [fact for fact in self.kind.get("facts", ()) if fact[1] in self.values]
        return [(question, self.values[value], section or self.title) for question, value, section, _ in known]

    @property
    def page(self) -> Page:
        """The entity's page as markdown."""
        parts, is_text = [f"# {self.title}"], False
        for line in self.kind["page"].split("\n"):
            try:
                sentence = line.format_map(self.values)
            except KeyError:
                continue
            is_first, is_text = not is_text, not line.startswith("#")
            parts.append(("\n\n" if is_first or not is_text else " ") + sentence)
        return Page(self.title.lower().replace(" ", "_"), self.title, "".join(parts) + "\n")


class Encyclopedia:
    """A generated encyclopedia. The seed determines its content. `num_pages` is rounded down to a multiple of ten.

    Raises:
        UserError: for fewer than ten pages.
    """

    def __init__(self, num_pages: int, seed: int = 0) -> None:
        if num_pages < SMALLEST:
            raise UserError(f"a generated encyclopedia has {SMALLEST} pages or more, not {num_pages}.")
        self.seed = seed
        self._cycles = num_pages // SMALLEST

    def __len__(self) -> int:
        return self._cycles * SMALLEST

    def pages(self) -> Iterator[Page]:
        """Yield all pages, in the order of their numbers."""
        for number in range(len(self)):
            yield self._entity(number).page

    def questions(self) -> Iterator[Question]:
        """Yield distinct questions. The encyclopedia's seed sets their order. Raises UserError when no more are
        found."""
        rng, seen, known = self._rng("questions", 1), set(), 0
        while known < EXHAUSTED:
            question = self._question(rng)
            known += 1
            if question.question not in seen:
                known = 0
                seen.add(question.question)
                yield question
        raise UserError(f"{len(self)} pages give only {len(seen)} questions: ask for fewer, or more pages.")

    def _question(self, rng: random.Random) -> Question:
        while not (entity := self._entity(rng.randrange(len(self)))).facts:
            pass  # draw again: this page is a distractor without facts
        question, answer, section = rng.choice(entity.facts)
        return Question(question.format(entity.title), answer, entity.page.id, (), section)

    def _entity(self, number: int) -> Entity:
        name, targets = CYCLE[number % SMALLEST], self._targets(number)
        kind, rng = KINDS[name], self._rng(name, number)
        linked = {link: self._title(target) for link, target in targets.items()}
        values: dict[str, Any] = {**linked, "name": name_of(number, self.seed), **self._life(number, name, targets)}
        values["title"] = self._title(number, linked)
        values["surname"] = values["title"].split()[-1]
        for drawn, (low, *more) in kind["draws"].items():
            is_word = isinstance(low, str)
            values[drawn] = (
                rng.choice([low, *more])
                if is_word
                else rng.randrange(low, more[0]) + sum(values[base] for base in more[1:])
            )
        return Entity({key: str(value) for key, value in values.items()}, kind)

    # Entities on the same ten pages are linked, so each entity can compute the number of the other.

    def _targets(self, number: int) -> dict[str, int]:
        """Return the numbers of the entities to which an entity is linked, by the name of the link."""
        kind, cycle = CYCLE[number % SMALLEST], number // SMALLEST
        own = PLACES[kind].index(number % SMALLEST)
        found = {
            link: self._number(other, cycle, cycle if which < 0 else which)
            for link, (other, which, *only) in KINDS[kind]["links"].items()
            if own in (only or [own])
        }
        if kind in ("person", "company"):
            rng = self._rng("home", number)
            found["home"] = self._number("town", rng.randrange(self._cycles), rng.randrange(2))
        return found

    def _number(self, kind: str, cycle: int, which: int = 0) -> int:
        return cycle % self._cycles * SMALLEST + PLACES[kind][which % len(PLACES[kind])]

    # Years, chosen so that nobody joins a company before its founding, or writes before being born.

    def _life(self, number: int, kind: str, targets: Mapping[str, int]) -> dict[str, Any]:
        """Return the dates on page `number` by name. The page of a company has the year of its founding. Other pages
        have the years of birth and death of a person, of a book's author or of a prize's namesake. The page of a person
        also has the company that the person joined, and the year."""
        if kind == "company":
            return {"founded": self._year_of_founding(number)}
        person = number if kind == "person" else targets.get("author", targets.get("person"))
        if person is None:
            return {}
        born, died = self._years(person)
        position = self._position(number, born) if kind == "person" else {}
        return {"born": born, "died": died, "age": died - born, **position}

    def _years(self, number: int) -> tuple[int, int]:
        rng = self._rng("life", number)
        born = rng.randrange(1780, 1900)
        return born, born + rng.randrange(50, 95)

    def _year_of_founding(self, number: int) -> int:
        """Return the founding year of a company. Its founder was 22 to 44 years old in that year."""
        founder = self._number("person", number // SMALLEST, 1)
        return self._years(founder)[0] + self._rng("founding", number).randrange(22, 45)

    def _position(self, number: int, born: int) -> dict[str, Any]:
        """Return the company that a person joined, and the year in which this happened. Return an empty dict if 20
        drawn companies were all founded after this year."""
        rng = self._rng("position", number)
        joined = born + rng.randrange(20, 34)
        for _ in range(20):
            company = self._number("company", rng.randrange(self._cycles))
            if self._year_of_founding(company) <= joined:
                return {"company": self._title(company), "joined": joined}
        return {}

    def _rng(self, *what: object) -> random.Random:
        """Return the random generator for one purpose. Its numbers are the same on every machine and for any order of
        calls."""
        return random.Random(f"{self.seed}/{what}")

    def _title(self, number: int, linked: Mapping[str, str] | None = None) -> str:
        """Return the title of an entity. The title of a prize or a street contains the name of a `linked` entity."""
        kind, rng = KINDS[CYCLE[number % SMALLEST]], self._rng("title", number)
        # Surnames repeat, so that a surname alone does not find a person.
        surname = name_of(rng.randrange(max(2, len(self) // 4)), self.seed + 1) if "{surname}" in kind["title"] else ""
        word = rng.choice(kind["words"]) if "words" in kind else ""
        return str(kind["title"].format(name=name_of(number, self.seed), surname=surname, word=word, **(linked or {})))


def name_of(number: int, seed: int) -> str:
    """Return an invented name for a number. The first 1.3 million numbers have two syllables, later numbers have more.

    Distinct numbers have distinct names.

    >>> name_of(0, 0) == name_of(0, 0), len({name_of(n, 7) for n in range(5000)})
    (True, 5000)
    """
    base = len(SYLLABLES) ** 2
    rest, low = divmod(number, base)
    # A permutation of the pairs of syllables, so that the names of neighbouring numbers do not sound alike.
    low = (low * SHUFFLE + seed * 7_919 + 104_729) % base
    syllables = [SYLLABLES[low // len(SYLLABLES)], SYLLABLES[low % len(SYLLABLES)]]
    while rest:
        rest, place = divmod(rest, len(SYLLABLES))
        syllables.append(SYLLABLES[place])
    return "".join(syllables).capitalize()
