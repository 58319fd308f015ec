"""The contract of an environment: `slimrl check` finds no fault in any of these, whatever they are sent.

It tries scripts, silence and useless replies, alone and at once, and compares splits, rewards and repeated episodes.
"""

import json
from contextlib import nullcontext
from importlib.metadata import distribution
from importlib.util import find_spec

import pytest

from packages.envs.tests.openenv.installed import PYTHON, server_of
from slimrl.cli import run
from slimrl.plugins import COMMANDS, ENVIRONMENTS, names

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("check" not in names(COMMANDS), reason="the command `check` is not installed"),
    pytest.mark.filterwarnings("default"),  # their dependencies', on import
]
PACKAGES = {"bfcl": "bfcl_eval"}  # where the module has another name than the scheme
GAME = "matching-game --args.num_train 30 --args.num_test 10 --args.n 3"
FEW = "--args.num_train 30 --args.num_test 10"
FIRST = ["alphabet-sort", "wordle", f"{GAME} --args.role 2"]  # the others are for the night
VARIANTS = [
    *FIRST,
    "alphabet-sort --args.restate true --args.num_examples 3",
    "wordle --args.spelled true --args.hints true",
    "wordle --args.opened true --args.num_answers 200",
    f"{GAME} --args.partner self",
    f"{GAME} --args.notes true --args.thoughts true",
    "matching-game --args.num_train 200 --args.num_test 50 --args.n 2",
    *(f"reasoning-gym:{one} {FEW}" for one in ("chain_sum --args.answer_format lenient", "countdown", "spiral_matrix")),
    *(f"reasoning-gym:{one} {FEW}" for one in ("chain_sum", "simple_integration")),
    *(f"textarena:{one} {FEW}" for one in ("GuessTheNumber-v0", "Nim-v0", "KuhnPoker-v0", "Sudoku-v0")),
    *(f"bfcl:{one}" for one in ("simple_python", "parallel+irrelevance", "multi_turn_miss_func --args.partial true")),
    *(f"openenv:{one} {FEW}" for one in ("guess", "line", "tools")),
]


def is_installed(environment: str) -> bool:
    scheme, colon, _ = environment.partition(":")
    module = PACKAGES.get(scheme, scheme.replace("-", "_"))
    return bool(PYTHON) if scheme == "openenv" else not colon or find_spec(module) is not None


@pytest.mark.parametrize(
    "words",
    [one if one in FIRST else pytest.param(one, marks=pytest.mark.nightly) for one in VARIANTS],
    ids=[one.split()[0] for one in VARIANTS],
)
def test_no_variant_has_a_fault(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not is_installed(words):
        pytest.skip("its package is not installed")
    environment, *more = words.split()
    scheme, _, name = environment.partition(":")
    with server_of(f"served:{name}") if scheme == "openenv" else nullcontext("") as base:
        status = run(["check", f"openenv:{base}" if base else environment, *more, "--num_examples", "5", "--json"])
    (report,) = json.loads(capsys.readouterr().out)
    assert (status, [one for one in report["findings"] if one["level"] == "problem"]) == (0, [])


def test_the_variants_have_every_environment() -> None:
    """The table leaves out verifiers, whose tests have a Python of their own (`verifiers/plays.py`)."""
    entries = [one.name for one in distribution("slimrl-envs").entry_points if one.group == ENVIRONMENTS]
    assert {name for name in entries if not any(words.startswith(name) for words in VARIANTS)} == {"verifiers:"}
