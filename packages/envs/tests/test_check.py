"""`slimrl check` finds no fault in these environments."""

import pytest

from packages.tools.tests.check.reports import environments_of, problems, run_json

GAME = ["matching-game", "--args.num_train", "30", "--args.num_test", "10"]
FIRST = [["alphabet-sort"], ["wordle"], [*GAME, "--args.n", "3", "--args.role", "2"]]  # the others are for the night
VARIANTS = [
    ["alphabet-sort"],
    ["alphabet-sort", "--args.restate", "true", "--args.num_examples", "3", "--args.key_by_turn", "true"],
    ["wordle"],
    ["wordle", "--args.spelled", "true", "--args.hints", "true"],
    ["wordle", "--args.opened", "true", "--args.num_answers", "200"],
    *([*GAME, "--args.n", "3", *more] for more in (["--args.role", "2"], ["--args.partner", "self"])),
    [*GAME, "--args.n", "3", "--args.notes", "true", "--args.thoughts", "true"],
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv", [one if one in FIRST else pytest.param(one, marks=pytest.mark.nightly) for one in VARIANTS], ids=" ".join
)
def test_no_variant_has_a_fault(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, findings = run_json([*argv, "--num_examples", "5"], capsys)
    assert (status, problems(findings)) == (0, set())


def test_the_variants_have_every_environment() -> None:
    assert {argv[0] for argv in VARIANTS} == environments_of("slimrl-envs")
