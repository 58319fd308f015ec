"""The made-up encyclopedia: its facts agree from page to page, and its questions have their answers where they say."""

import re
from itertools import islice

import pytest

from slimrl.errors import UserError
from slimrl_search.retrieval.encyclopedia import CYCLE, Encyclopedia, name_of
from slimrl_search.retrieval.pages import Page, Question
from slimrl_search.retrieval.sections import key_of, section_text

LARGE = 1_000_000


def pages_of(num: int, seed: int = 0) -> dict[str, Page]:
    return {page.id: page for page in Encyclopedia(num, seed).pages()}


def some(encyclopedia: Encyclopedia, num: int) -> list[Question]:
    return list(islice(encyclopedia.questions(), num))


def test_it_is_the_same_for_the_same_seed_and_another_for_another():
    assert pages_of(200) == pages_of(200)
    assert not pages_of(200).keys() & pages_of(200, seed=1).keys()
    assert some(Encyclopedia(200), 50) == some(Encyclopedia(200), 50)
    pages = pages_of(4000)
    assert len(pages) == 4000 == len({page.title for page in pages.values()})


def test_a_million_pages_come_as_a_stream():
    encyclopedia = Encyclopedia(LARGE)
    assert len(encyclopedia) == LARGE and len(list(islice(encyclopedia.pages(), 100))) == 100
    assert len(some(encyclopedia, 100)) == 100
    assert len({name_of(number, 5) for number in range(1_300_000, 1_500_000)}) == 200_000


def test_the_answer_stands_in_the_section_that_the_question_names():
    pages = pages_of(500)
    questions = some(Encyclopedia(500), 300)
    assert len({question.question for question in questions}) == 300
    for question in questions:
        page = pages[question.page_id]
        text = section_text(page, key_of(question.section))
        assert text is not None and re.search(rf"\b{re.escape(question.answer)}\b", text), question
        assert page.title in question.question


def test_pages_agree_about_each_other():
    pages = pages_of(1000)
    by_title = {page.title: page for page in pages.values()}

    def said(pattern: str, page: Page) -> str:
        found = re.search(pattern, page.content)
        assert found, (pattern, page)
        return found[1]

    def birth(person: Page) -> int:
        return int(said(r"was born in .+ in (\d+)", person))

    seen = dict.fromkeys(("book", "company", "joined", "river"), 0)
    for page in pages.values():
        if "is a novel by" in page.content:
            writer = by_title[said(r"novel by (.+)\.", page)]
            published = int(said(r"published in (\d+)", page))
            assert f"wrote the book {page.title}." in writer.content
            assert birth(writer) + 20 < published < int(said(r"died in (\d+)", writer))
            seen["book"] += 1
        if "is a maker of" in page.content:
            founder = by_title[said(r"founded by (.+) in \d+", page)]
            assert f"founded {page.title}." in founder.content
            assert (
                birth(founder) + 20 < int(said(r"founded by .+ in (\d+)", page)) < int(said(r"died in (\d+)", founder))
            )
            seen["company"] += 1
        if joined := re.search(r"In (\d+) \S+ joined (.+) as an? ", page.content):
            assert int(said(r"founded by .+ in (\d+)", by_title[joined[2]])) <= int(joined[1])
            seen["joined"] += 1
        if "reaches the sea at" in page.content:
            assert f"at the mouth of the {page.title}" in by_title[said(r"sea at (.+)\.", page)].content
            seen["river"] += 1
    assert seen["book"] == seen["company"] == seen["river"] == 100 and seen["joined"] > 200


def test_some_pages_bear_the_names_of_others_and_nobody_asks_for_them():
    pages, asked = pages_of(500), {question.page_id for question in some(Encyclopedia(500), 800)}
    distractors = {page.id for page in pages.values() if "Prize" in page.title or "Street" in page.title}
    assert len(distractors) == 500 * sum(kind in ("prize", "street") for kind in CYCLE) // len(CYCLE)
    assert not distractors & asked


def test_too_little_is_refused():
    with pytest.raises(UserError, match="10 pages or more"):
        Encyclopedia(9)
    with pytest.raises(UserError, match="ask for fewer"):
        list(Encyclopedia(10).questions())
