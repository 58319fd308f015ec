"""`slimrl check` finds no fault in any variant of wiki-search."""

import pytest

from packages.tools.tests.check.reports import environments_of, problems, run_json

WIKI = ["wiki-search", "--args.num_pages", "200", "--args.num_train", "40", "--args.num_test", "10"]
VARIANTS = [[*WIKI, "--args.format", form] for form in ("tags", "native", "code")]


@pytest.mark.nightly
@pytest.mark.parametrize("argv", VARIANTS, ids=" ".join)
def test_no_variant_has_a_fault(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, findings = run_json([*argv, "--num_examples", "5"], capsys)
    assert (status, problems(findings)) == (0, set())


def test_the_variants_have_every_environment() -> None:
    assert {argv[0] for argv in VARIANTS} == environments_of("slimrl-search")
