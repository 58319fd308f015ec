"""Texts of models are shown as text, whatever is in them, and no request leaves this machine."""

import json

import pytest

from packages.view.tests.conftest import Tab
from packages.view.tests.played import INJECTIONS

pytestmark = pytest.mark.slow  # a browser of its own

GROUP = "#/group?run=a&group=4/train/%3Cimg+src=x+onerror=alert(12)%3E%E2%80%AE"
# The page with its texts left out: what hostile texts must not change.
ELEMENTS = """() => {
  const names = new Set([...document.querySelectorAll("body *")].map((each) => each.localName));
  return [...names].sort().join(" ");
}"""
ALLOWED = """del ins aside figure figcaption canvas ul li table thead tbody tr th td wbr input label select option
circle line svg title b"""  # elements of pages that the plain page lacks
DANGEROUS = (
    "script, img, iframe, object, embed, style, link, meta, base, form, [autofocus], [onerror], [onload], [onfocus]"
)
COPY = """() => {
  const place = document.querySelectorAll(".column")[16].querySelector(".segment-reply .segment-text");
  getSelection().selectAllChildren(place);
  const clipboardData = new DataTransfer();
  place.dispatchEvent(new ClipboardEvent("copy", { bubbles: true, cancelable: true, clipboardData }));
  return clipboardData.getData("text/plain");
}"""
INLINE = """() => {
  const script = document.createElement("script");
  script.textContent = "window.ran = 1";
  document.head.append(script);
  return window.ran ?? 0;
}"""
RAW = """(place) => {
  const copy = place.cloneNode(true);
  for (const chip of copy.querySelectorAll(".chip")) chip.textContent = chip.dataset.raw;
  return copy.textContent;
}"""


def test_every_hostile_reply_is_shown_as_it_was_written(tab: Tab) -> None:
    page = tab.open(GROUP)
    page.wait_for_selector(f".column:nth-child({len(INJECTIONS)}) .segment-reply .segment-text .t")
    assert page.locator(f"main :is({DANGEROUS})").count() == 0
    columns = page.locator(".column")
    assert columns.count() == len(INJECTIONS) == 20
    for number, text in enumerate(INJECTIONS):
        shown = columns.nth(number).locator(".segment-reply .segment-text").evaluate(RAW)
        for label in ("tool call", "thought", "answer"):
            shown = shown.replace(label, "")
        assert shown.removesuffix("<|im_end|>") == text


def test_hostile_texts_add_no_element_to_any_page(tab: Tab) -> None:
    page = tab.open("#/group?run=a&group=4/train/brackwater")
    page.wait_for_selector(".part-answer .t")
    plain = set(page.evaluate(ELEMENTS).split())
    for address, selector in (
        (GROUP, ".segment-reply .segment-text .t"),
        ("#/rollouts?run=a&q=task:onerror", ".row-link"),
        ("#/rollout?run=a&key=train:4:14", ".rollout .segment-reply .segment-text .t"),
        ("#/compare?left=a:train:4:14&right=a:train:4:17", ".diff ins"),
        ("#/groups?run=a&q=task:onerror", ".row-group .cell-excerpt"),
    ):
        page = tab.open(address)
        page.wait_for_selector(selector)
        assert set(page.evaluate(ELEMENTS).split()) - plain <= set(ALLOWED.split())
        assert page.locator(f"main :is({DANGEROUS})").count() == 0
    assert page.title() == "slimrl view"


@pytest.mark.parametrize(
    "address", [GROUP, "#/rollout?run=a&key=train:4:14", "#/compare?left=a:train:4:14&right=a:train:4:17"]
)
def test_a_hostile_tasks_data_is_shown_as_it_was_written(tab: Tab, address: str) -> None:
    page = tab.open(address)
    page.wait_for_selector(".task-data dd")
    assert page.locator(f"main :is({DANGEROUS})").count() == 0
    assert tab.texts(".task-data dt") == [INJECTIONS[0], "hidden", "list"]
    shown = [page.locator(".task-data dd").nth(number).evaluate(RAW) for number in range(3)]
    assert shown[:2] == [INJECTIONS[1], INJECTIONS[16]] and json.loads(shown[2]) == [*INJECTIONS[2:6]]
    assert page.locator(".task-data .chip").all_text_contents() == ["U+202E", "U+202C", "U+2066", "U+2069"]


def test_a_copy_holds_the_raw_text(tab: Tab) -> None:
    page = tab.open(GROUP)
    page.wait_for_selector(".column:nth-child(17) .segment-reply .segment-text .t")
    assert page.evaluate(COPY) == INJECTIONS[16] + "<|im_end|>"


def test_a_hostile_address_is_only_text(tab: Tab) -> None:
    for address in (
        "#/<img src=x onerror=alert(1)>",
        "#/groups?run=<script>alert(1)</script>&q=<b>x</b>",
        "#/rollout?run=a&key=<svg onload=alert(1)>",
    ):
        page = tab.open(address)
        page.wait_for_timeout(300)
        assert page.locator(f"main :is({DANGEROUS})").count() == 0


def test_the_page_forbids_what_it_does_not_need(tab: Tab) -> None:
    page = tab.open()
    assert page.evaluate("fetch('http://192.0.2.1/').then(() => 'sent', () => 'refused')") == "refused"
    assert page.evaluate(INLINE) == 0
    tab.faults.clear()  # the browser reports both
    tab.asked[:] = [url for url in tab.asked if "192.0.2.1" not in url]
