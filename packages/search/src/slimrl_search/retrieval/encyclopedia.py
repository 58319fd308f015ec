"""The module generates a fictional encyclopedia of any size: entities with consistent, linked facts, and questions.

All facts about an entity are a function of the seed and of its number. So pages can be streamed without being kept, and
a page can repeat what another one says without having seen it. No model has read about these entities in its training,
so a right answer must have been looked up.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slimrl.errors import UserError
from slimrl_search.retrieval.names import name_of
from slimrl_search.retrieval.pages import Page, Question

# The kinds of ten consecutive pages. Prize and street are distractors: they bear another entity's name, without facts.
CYCLE = ("person", "town", "person", "company", "person", "book", "town", "river", "prize", "street")
SMALLEST = len(CYCLE)
EXHAUSTED = 300  # repeated questions in a row, after which no new ones are expected
PROFESSIONS = ("cartographer", "botanist", "composer", "engineer", "painter", "astronomer", "sculptor", "chemist")
PRODUCTS = ("clocks", "lamps", "sailcloth", "bicycles", "violins", "telescopes", "paper", "bells", "ploughs", "dyes")
SUBJECTS = (
    "a lighthouse keeper",
    "a lost orchard",
    "two rival bakers",
    "a winter voyage",
    "a stolen map",
    "a blind judge",
)
MONTHS = ("January", "March", "April", "May", "June", "August", "September", "October", "November")


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that can be asked for. `{}` in the question stands for the entity's title or a phrase for it."""

    question: str
    answer: str
    section: str


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity: the sections of its page, and the facts there that can be asked for."""

    title: str
    sections: tuple[tuple[str, str], ...]  # heading, text; the first is the page's own
    facts: tuple[Fact, ...]

    @property
    def page(self) -> Page:
        """The entity's page as markdown."""
        (_, lead), *others = self.sections
        parts = [f"# {self.title}\n\n{lead}", *(f"## {heading}\n\n{text}" for heading, text in others)]
        return Page(self.title.lower().replace(" ", "_"), self.title, "\n\n".join(parts) + "\n")


class Encyclopedia:
    """An encyclopedia of `num_pages` pages, rounded down to a multiple of ten; a function of the seed.

    Raises:
        UserError: for fewer than ten pages.
    """

    def __init__(self, num_pages: int, seed: int = 0) -> None:
        if num_pages < SMALLEST:
            raise UserError(f"a generated encyclopedia has {SMALLEST} pages or more, not {num_pages}.")
        self.seed = seed
        self._cycles = num_pages // SMALLEST
        self._makers: dict[str, Callable[[int], Entity]] = {
            "person": self._person,
            "town": self._town,
            "company": self._company,
            "book": self._book,
            "river": self._river,
            "prize": self._prize,
            "street": self._street,
        }

    def __len__(self) -> int:
        return self._cycles * SMALLEST

    def pages(self) -> Iterator[Page]:
        """All pages, in the order of their numbers."""
        for number in range(len(self)):
            yield self._entity(number).page

    def questions(self, hops: int = 1) -> Iterator[Question]:
        """Distinct questions of 1 or 2 hops, in an order given by the seed. Raises UserError when no more are found."""
        assert hops in (1, 2), hops
        rng, seen, known = self._rng("questions", hops), set(), 0
        while known < EXHAUSTED:
            question = self._one_hop(rng) if hops == 1 else self._two_hops(rng)
            known += 1
            if question.question not in seen:
                known = 0
                seen.add(question.question)
                yield question
        raise UserError(
            f"{len(self)} pages give only {len(seen)} questions of {hops} hops: ask for fewer, or more pages."
        )

    def _entity(self, number: int) -> Entity:
        return self._makers[CYCLE[number % SMALLEST]](number)

    def _one_hop(self, rng: random.Random) -> Question:
        """A question whose page is named in it."""
        while not (entity := self._entity(rng.randrange(len(self)))).facts:
            pass  # a distractor: draw again
        fact = rng.choice(entity.facts)
        return Question(fact.question.format(entity.title), fact.answer, entity.page.id, (), fact.section)

    def _two_hops(self, rng: random.Random) -> Question:
        """A question on the page to which another one leads: a person's birthplace, a book's author, and so on."""
        number = self._number(rng.choice(("person", "book", "company", "river")), rng.randrange(self._cycles))
        source = self._entity(number)
        phrase, target, where = self._link(number, source.title)
        entity = self._entity(target)
        fact = rng.choice(entity.facts)
        question = fact.question.format(phrase)
        return Question(question, fact.answer, entity.page.id, (), fact.section, source.page.id, where)

    def _link(self, number: int, title: str) -> tuple[str, int, str]:
        """The entity to which a page leads: a phrase for it, its number, and the page's section that names it."""
        kind = CYCLE[number % SMALLEST]
        if kind == "person":
            return f"the birthplace of {title}", self._home(number), "Early life"
        if kind == "book":
            return f"the author of the book {title}", self._partner(number, "person"), title
        if kind == "company":
            return f"the founder of {title}", self._partner(number, "person", 1), "History"
        return f"the town at the mouth of the {title}", self._partner(number, "town"), title

    # Relations between entities of the same ten pages: each side can compute the other's number.

    def _number(self, kind: str, cycle: int, which: int = 0) -> int:
        places = [place for place, name in enumerate(CYCLE) if name == kind]
        return cycle % self._cycles * SMALLEST + places[which % len(places)]

    def _partner(self, number: int, kind: str, which: int = 0) -> int:
        """The number of the entity of another kind that belongs to this one alone: that of the same ten pages."""
        return self._number(kind, number // SMALLEST, which)

    def _home(self, number: int) -> int:
        rng = self._rng("home", number)
        return self._number("town", rng.randrange(self._cycles), rng.randrange(2))

    # Years, chosen so that nobody joins a company before its founding, or writes before being born.

    def _life(self, number: int) -> tuple[int, int]:
        """The years of a person's birth and death."""
        rng = self._rng("life", number)
        born = rng.randrange(1780, 1900)
        return born, born + rng.randrange(50, 95)

    def _year_of_founding(self, number: int) -> int:
        """The year in which a company was founded, when its founder was 22 to 44."""
        return self._life(self._partner(number, "person", 1))[0] + self._rng("founding", number).randrange(22, 45)

    def _position(self, number: int) -> tuple[int, int] | None:
        """The number of the company that a person joined, and the year; None if 20 draws were all founded later."""
        rng, born = self._rng("position", number), self._life(number)[0]
        joined = born + rng.randrange(20, 34)
        for _ in range(20):
            company = self._number("company", rng.randrange(self._cycles))
            if self._year_of_founding(company) <= joined:
                return company, joined
        return None

    def _rng(self, *what: object) -> random.Random:
        """The random generator for one purpose, the same on every machine and in any order of calls."""
        return random.Random(f"{self.seed}/{what}")

    # Names.

    def _name(self, number: int) -> str:
        """The unique word of an entity; it is the title of a town."""
        return name_of(number, self.seed)

    def _title(self, number: int) -> str:
        name, kind, rng = self._name(number), CYCLE[number % SMALLEST], self._rng("title", number)
        if kind == "person":
            # Surnames repeat, so that a surname alone does not find a person.
            return f"{name} {name_of(rng.randrange(max(2, len(self) // 4)), self.seed + 1)}"
        if kind == "company":
            return f"{name} {rng.choice(('Works', 'and Sons', 'Company', 'Brothers'))}"
        if kind == "book":
            return f"The {rng.choice(('Silence', 'Gardens', 'Letters', 'Shadow', 'Daughters'))} of {name}"
        return f"{name} River" if kind == "river" else name

    # Pages.

    def _person(self, number: int) -> Entity:
        rng, title, (born, died) = self._rng("person", number), self._title(number), self._life(number)
        surname, work, town = title.split()[1], rng.choice(PROFESSIONS), self._title(self._home(number))
        a_work = f"{'an' if work[0] in 'aeiou' else 'a'} {work}"
        facts = [
            Fact("In which year was {} born?", str(born), "Early life"),
            Fact("In which town was {} born?", town, "Early life"),
            Fact("In which year did {} die?", str(died), "Death"),
        ]
        career = f"{surname} learnt the trade for {rng.randrange(2, 9)} years."
        if position := self._position(number):
            company, joined = self._title(position[0]), position[1]
            career += f" In {joined} {surname} joined {company} as {a_work}."
            facts.append(Fact("Which company did {} join?", company, "Career"))
            facts.append(Fact("In which year did {} join a company?", str(joined), "Career"))
        # Of the three people in ten pages, the first has written the book and the second founded the company.
        which = CYCLE[: number % SMALLEST].count("person")
        if which == 0:
            career += f" {surname} wrote the book {self._title(self._partner(number, 'book'))}."
        elif which == 1:
            career += f" {surname} founded {self._title(self._partner(number, 'company'))}."
        children = rng.randrange(2, 9)
        sections = (
            (title, f"{title} ({born}-{died}) was {a_work}."),
            ("Early life", f"{surname} was born in {town} in {born} and was the eldest of {children} children."),
            ("Career", career),
            ("Death", f"{surname} died in {died}, aged {died - born}, and is buried in {town}."),
        )
        return Entity(title, sections, tuple(facts))

    def _town(self, number: int) -> Entity:
        rng, title = self._rng("town", number), self._title(number)
        people, founded, hills = rng.randrange(900, 90_000), rng.randrange(900, 1800), rng.randrange(2, 10)
        month, river = rng.choice(MONTHS), self._title(self._partner(number, "river"))
        # The river of the ten pages passes both towns and reaches the sea at the first.
        where = f"at the mouth of the {river}" if CYCLE[: number % SMALLEST].count("town") == 0 else f"on the {river}"
        mayor = self._title(self._partner(number, "person", 2))
        sections = (
            (title, f"{title} is a town {where}."),
            ("Geography", f"{title} lies on {hills} hills, {rng.randrange(20, 900)} metres above the sea."),
            ("History", f"{title} was founded in {founded}. It burnt down in {founded + rng.randrange(40, 200)}."),
            ("Population", f"At the last census {title} had {people} inhabitants."),
            ("Culture", f"The bell festival of {title} takes place every {month}. It was begun by {mayor}."),
        )
        facts = (
            Fact("In which year was {} founded?", str(founded), "History"),
            Fact("How many inhabitants does {} have?", str(people), "Population"),
            Fact("In which month does the bell festival of {} take place?", month, "Culture"),
            Fact("On how many hills does {} lie?", str(hills), "Geography"),
        )
        return Entity(title, sections, facts)

    def _company(self, number: int) -> Entity:
        rng, title = self._rng("company", number), self._title(number)
        founded, product, workers = self._year_of_founding(number), rng.choice(PRODUCTS), rng.randrange(12, 4000)
        founder, town = self._title(self._partner(number, "person", 1)), self._title(self._home(number))
        sections = (
            (title, f"{title} is a maker of {product}."),
            ("History", f"{title} was founded by {founder} in {founded}."),
            ("Operations", f"The workshops stand in {town}, where {workers} people work."),
            ("Products", f"Its {product} are sold in {rng.randrange(3, 60)} countries."),
        )
        facts = (
            Fact("In which year was {} founded?", str(founded), "History"),
            Fact("What does {} make?", product, title),
            Fact("How many people work for {}?", str(workers), "Operations"),
            Fact("In which town do the workshops of {} stand?", town, "Operations"),
        )
        return Entity(title, sections, facts)

    def _book(self, number: int) -> Entity:
        rng, title = self._rng("book", number), self._title(number)
        writer = self._partner(number, "person")
        author, year = self._title(writer), self._life(writer)[0] + rng.randrange(21, 50)
        chapters, subject = rng.randrange(7, 60), rng.choice(SUBJECTS)
        sections = (
            (title, f"{title} is a novel by {author}."),
            ("Plot", f"In {chapters} chapters the novel tells of {subject}."),
            ("Publication", f"{title} was published in {year} and reprinted {rng.randrange(2, 40)} times."),
        )
        facts = (
            Fact("In which year was {} published?", str(year), "Publication"),
            Fact("How many chapters does {} have?", str(chapters), "Plot"),
            Fact("What does {} tell of?", subject, "Plot"),
        )
        return Entity(title, sections, facts)

    def _river(self, number: int) -> Entity:
        rng, title = self._rng("river", number), self._title(number)
        length, bridges, source = rng.randrange(30, 900), rng.randrange(2, 40), rng.randrange(300, 2500)
        mouth, upper = (self._title(self._partner(number, "town", which)) for which in (0, 1))
        sections = (
            (title, f"The {title} is a river that reaches the sea at {mouth}."),
            ("Course", f"It rises {source} metres above the sea, runs {length} kilometres and passes {upper}."),
            ("Bridges", f"{bridges} bridges cross the {title}."),
        )
        facts = (
            Fact("How many kilometres long is the {}?", str(length), "Course"),
            Fact("How many bridges cross the {}?", str(bridges), "Bridges"),
        )
        return Entity(title, sections, facts)

    def _prize(self, number: int) -> Entity:
        """The distractor that is named after a person of the same ten pages."""
        rng, person = self._rng("prize", number), self._partner(number, "person", number // SMALLEST)
        title, first = f"{self._title(person)} Prize", self._life(person)[1] + rng.randrange(1, 20)
        sections = (
            (title, f"The {title} is awarded every {rng.randrange(2, 8)} years."),
            ("Winners", f"It has been awarded {rng.randrange(4, 40)} times, for the first time in {first}."),
        )
        return Entity(title, sections, ())

    def _street(self, number: int) -> Entity:
        """The distractor that is named after a town of the same ten pages."""
        rng, town = self._rng("street", number), self._title(self._partner(number, "town", number // SMALLEST))
        title = f"{town} Street {self._name(number)}"
        sections = (
            (title, f"{title} is a street of {rng.randrange(200, 3000)} metres."),
            ("Buildings", f"Of its {rng.randrange(20, 200)} houses {rng.randrange(3, 19)} are older than a century."),
        )
        return Entity(title, sections, ())
