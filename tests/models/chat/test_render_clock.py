"""A template that reads the clock writes the date of the run, on whatever day it is rendered."""

from datetime import date

import pytest
from transformers.utils import chat_template_utils

from slimrl.models.chat.render import with_date
from slimrl.models.chat.template import ChatFormat
from tests.models.chat import hub_templates
from tests.models.chat.pieces import piece_tokenizer
from tests.tiny import CHATML, tiny_tokenizer

DAY = date(2026, 3, 5)
# As Llama 3.1 and 4, Mistral Small 3, Granite 3, SmolLM3 and gpt-oss ask for it; two of them from within a macro.
READERS = {
    "%d %b %Y": "05 Mar 2026",
    "%Y-%m-%d": "2026-03-05",
    "%B %d, %Y": "March 05, 2026",
    "%d %B %Y": "05 March 2026",
    "%-d %B %Y": "5 March 2026",
    "%A, %H:%M": "Thursday, 00:00",
    "%%d is %d": "%d is 05",
    "no date": "no date",
}
MACRO = "{% macro today() %}{{ strftime_now('%d %b %Y') }}{% endmacro %}{{ today() }}"
GUARDED = (
    "{% if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% else %}{% set day = 'x' %}{% endif %}"
    "{{ day }}"
)


def rendered(template: str) -> str:
    tokenizer = tiny_tokenizer(chat_template=template)
    return tokenizer.apply_chat_template([{"role": "user", "content": "q"}], tokenize=False)


@pytest.mark.parametrize("format", READERS)
def test_every_form_of_a_date_is_that_of_the_day(format: str) -> None:
    assert rendered(with_date(f"{{{{ strftime_now('{format}') }}}}", DAY)) == READERS[format]
    assert rendered(with_date(f"{{% set f = '{format}' %}}{{{{ strftime_now(f) }}}}", DAY)) == READERS[format]


@pytest.mark.parametrize("template", [MACRO, GUARDED])
def test_the_clock_is_found_wherever_a_template_asks_for_it(template: str) -> None:
    assert rendered(with_date(template, DAY)) == "05 Mar 2026"


@pytest.mark.parametrize("begin", ["\n{% if true %}\nx{% endif %}", "  {% if true %}\n x\n{% endif %}", "\n x", CHATML])
def test_nothing_else_of_a_template_changes(begin: str) -> None:
    assert with_date(begin, DAY) == begin
    template = f"{begin}{{# no strftime_now #}}"
    assert with_date(template, DAY) != template
    assert rendered(with_date(template, DAY)) == rendered(template)


class NextDay:
    """A clock on which another day has begun."""

    @staticmethod
    def now():
        return date(2031, 1, 1)


@pytest.mark.parametrize(
    "template", [hub_templates.LLAMA31, {"default": hub_templates.LLAMA31, "tool_use": "{{ strftime_now('%Y') }}"}]
)
def test_prompts_do_not_change_at_midnight(template, monkeypatch) -> None:
    chat = ChatFormat(piece_tokenizer("bytes", template), day=DAY)
    asked = [{"role": "user", "content": "q"}]
    before = chat.opening(asked)
    assert "Today Date: 05 Mar 2026" in chat.full_text(before)
    monkeypatch.setattr(chat_template_utils, "datetime", NextDay)
    assert chat.opening(asked) == before
    assert chat.date == DAY


def test_a_chat_format_without_a_day_takes_the_present_one_and_keeps_it(monkeypatch) -> None:
    chat = ChatFormat(piece_tokenizer("bytes", hub_templates.LLAMA31))
    before = chat.opening([{"role": "user", "content": "q"}])
    monkeypatch.setattr(chat_template_utils, "datetime", NextDay)
    assert chat.opening([{"role": "user", "content": "q"}]) == before
    assert chat.date is not None and chat.date <= date.today()


def test_a_template_without_a_clock_has_no_date() -> None:
    assert ChatFormat(tiny_tokenizer(), day=DAY).date is None
