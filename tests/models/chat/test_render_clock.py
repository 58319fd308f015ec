"""A template that reads the clock writes the date of the run, on whatever day it is rendered."""

from datetime import date
from types import SimpleNamespace

import pytest
from transformers.utils import chat_template_utils

from slimrl.models.chat.render import with_date
from slimrl.models.chat.template import ChatFormat
from tests.models.chat import hub_templates
from tests.models.chat.pieces import piece_tokenizer
from tests.models.chat.templates import user
from tests.tiny import CHATML, tiny_tokenizer

DAY = date(2026, 3, 5)
# As Llama 3.1 and 4, Mistral Small 3, Granite 3, SmolLM3 and gpt-oss ask for it; two of them from within a macro.
ASKERS = {
    "{{ strftime_now('%d %b %Y') }}": "05 Mar 2026",
    "{% set f = '%B %d, %Y' %}{{ strftime_now(f) }}": "March 05, 2026",
    "{{ strftime_now('%-d %B %Y, %A, %H:%M') }}": "5 March 2026, Thursday, 00:00",
    "{{ strftime_now('%%d is %d') }}": "%d is 05",
    "{% macro today() %}{{ strftime_now('%Y-%m-%d') }}{% endmacro %}{{ today() }}": "2026-03-05",
    "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}x{% endif %}": "05 Mar 2026",
}


def rendered(template: str) -> str:
    tokenizer = tiny_tokenizer(chat_template=template)
    return tokenizer.apply_chat_template([user("q")], tokenize=False)


@pytest.mark.parametrize("asker", ASKERS)
def test_every_form_of_a_date_is_that_of_the_day(asker: str) -> None:
    assert rendered(with_date(asker, DAY)) == ASKERS[asker]


@pytest.mark.parametrize("begin", ["  {% if true %}\n x\n{% endif %}", "\n x", CHATML])
def test_nothing_else_of_a_template_changes(begin: str) -> None:
    assert with_date(begin, DAY) == begin
    template = f"{begin}{{# no strftime_now #}}"
    assert rendered(with_date(template, DAY)) == rendered(template)


@pytest.mark.parametrize("day", [DAY, None])
@pytest.mark.parametrize(
    "template", [hub_templates.LLAMA31, {"default": hub_templates.LLAMA31, "tool_use": "{{ strftime_now('%Y') }}"}]
)
def test_prompts_do_not_change_at_midnight(template, day: date | None, monkeypatch) -> None:
    chat = ChatFormat(piece_tokenizer("bytes", template), day=day)
    asked = [user("q")]
    before = chat.opening(asked)
    assert f"Today Date: {day or date.today():%d %b %Y}" in chat.full_text(before)
    another = SimpleNamespace(now=lambda: date(2031, 1, 1))
    monkeypatch.setattr(chat_template_utils, "datetime", another)
    assert chat.opening(asked) == before
    assert chat.date == (day or date.today())
    assert ChatFormat(tiny_tokenizer(), day=DAY).date is None
