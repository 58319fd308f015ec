"""The exported page opens from the disk, without a server, and shows the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packages.view.tests.conftest import Opener, Tab
from packages.view.tests.played import play
from slimrl_view.command import run_view

pytestmark = pytest.mark.slow  # a browser of its own


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Path:
    """An export of two runs."""
    runs = tmp_path_factory.mktemp("exported")
    for seed, name in enumerate(("a", "b")):
        play(runs / name, seed=seed)
    assert run_view([str(runs / "a"), str(runs / "b"), "--export", str(runs / "page")]) == 0
    return runs / "page"


@pytest.fixture
def tab(new_tab: Opener, exported: Path) -> Iterator[Tab]:
    """A tab at the exported page. In the end, only its own files were asked for."""
    tab = new_tab(f"{exported.as_uri()}/index.html")
    yield tab
    assert [url for url in tab.asked if not url.startswith((exported.as_uri(), "data:"))] == []


def test_an_export_shows_curves_with_bands_and_alarms(tab: Tab) -> None:
    page = tab.open("#/curves?m=reward/mean,loss/entropy")
    page.wait_for_selector(".chart canvas")
    page.wait_for_selector(".mark")
    assert tab.texts(".values dt")[1] == "a, mean of 2 seeds"
    assert tab.texts(".pulse") == ["exported"]


def test_an_export_filters_sorts_and_searches_rollouts(tab: Tab) -> None:
    page = tab.open("#/rollouts?run=a")
    page.wait_for_selector(".facet-drop")
    page.locator(".facet-drop").click()
    tab.until("document.querySelector('.listing-head').innerText.includes('5 of 80 rollouts')")
    for query, count in (
        ('"Lenn" metric.exact=1 step:4', 5),
        ("reward>=1 step:4", 15),
        ("zero", 20),
        ("task:tarn drop:none", 15),
    ):
        page.get_by_label("Filter rollouts").fill(query)
        tab.until(f"document.querySelector('.listing-head').innerText.includes('{count} of 80')")
    page.get_by_label("Filter rollouts").fill("")
    page.get_by_label("Order").select_option("-reward")
    tab.until("document.querySelector('.cell-reward').innerText === '1.9'")


def test_an_export_answers_as_the_server_does(tab: Tab, new_tab: Opener, served: Any) -> None:
    live = new_tab(served.base)
    for query in (
        "",
        "zero",
        "drop:any",
        "reward>0.5 step:2..3",
        "turns=2 tokens>40",
        '"Ossel"',
        "stop:failed",
        "metric.searches=0",
    ):
        counts = []
        for each in (tab, live):
            page = each.open(f"#/rollouts?run=a&q={query}")
            page.wait_for_selector(".listing-head [role=status]")
            page.reload()
            page.wait_for_selector(".listing-head [role=status]")
            counts.append(each.texts(".listing-head [role=status]"))
        assert counts[0] == counts[1], query


def test_an_export_has_groups_tokens_and_comparisons(tab: Tab) -> None:
    page = tab.open("#/groups?run=a&q=zero")
    page.wait_for_selector(".row-link")
    assert "5 of 16 groups" in tab.texts(".listing-head")[0]
    page.locator(".row-link").first.click()
    page.wait_for_selector(".shared")
    page.get_by_role("radio", name="entropy").click()
    page.wait_for_selector(".column .s2")
    page.locator(".column-title a").first.click()
    page.wait_for_selector(".rollout .strip canvas")
    page.wait_for_selector(".others a")
    page = tab.open("#/compare?a=a/start_greedy&b=a/final_greedy")
    page.wait_for_selector(".diff ins")
    assert tab.texts(".pairs [role=radio]") == ["all 4", "better 3", "worse 0", "same 1"]


def test_the_reference_of_the_recipe_stands_behind_the_run(tab: Tab, exported: Path) -> None:
    own = exported / "data" / "runs_a_reference.js"
    before = own.read_text()
    curve = {"steps": [0, 4], "low": [0.2, 0.5], "mid": [0.3, 0.6], "high": [0.4, 0.7]}
    reference = {"recipe": "wiki_search", "source": "recorded", "curves": {"reward/mean": curve}}
    own.write_text(f"window.slimrlData('runs_a_reference.js', {json.dumps(reference)});")
    try:
        page = tab.open("#/curves?runs=a&m=reward/mean")
        page.wait_for_selector(".dash.reference")
        assert tab.texts(".values dt") == ["step", "recipe wiki_search", "a"]
    finally:
        own.write_text(before)


def test_a_file_that_is_missing_is_named(tab: Tab, exported: Path) -> None:
    lost = exported / "data" / "runs_b_detail_0.js"
    lost.rename(lost.with_suffix(".gone"))
    try:
        page = tab.open("#/rollout?run=b&key=train:0:0")
        page.wait_for_selector(".problem")
        assert "data/runs_b_detail_0.js is missing beside this page" in tab.texts(".problem")[0]
        tab.faults.clear()  # the browser reports the file too
    finally:
        lost.with_suffix(".gone").rename(lost)
