"""How large things may be. A file that outgrows its limit is two subjects: split it, do not raise the limit."""

import ast
from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pytest

from tests.project.distributions import HOMES, ROOT, all_files, files_of
from tests.project.language import comment_share

pytestmark = pytest.mark.slow

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
USUAL_FUNCTION_LINES = 24  # no more in 95 of 100 functions of a distribution
MAX_PARAMETERS = 6
MIN_COMMENTS = 0.04  # lines with a comment, of lines with code, over all distributions

# What a newcomer reads, in this order.
SIX_FILES = (
    "src/slimrl/types.py",
    "src/slimrl/rollout/episode.py",
    "src/slimrl/orchestrator/advantages.py",
    "src/slimrl/trainer/losses.py",
    "src/slimrl/trainer/rl/train.py",
    "src/slimrl/commands/rl.py",
)
MAX_SIX_FILES_LINES = 1000
MAX_TRAINING_LOOP_LINES = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_of(source: str) -> Iterator[tuple[Function, int]]:
    """Every function of a module, and the number of its lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            yield node, (node.end_lineno or node.lineno) - node.lineno + 1


def oversized_functions(source: str) -> list[str]:
    """The functions of a module that are too long or take too many parameters (`self` and `cls` not counted)."""
    found = []
    for node, lines in functions_of(source):
        names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        num_parameters = len(names) - (names[:1] in (["self"], ["cls"]))
        if lines > MAX_FUNCTION_LINES:
            found.append(f"{node.name}, line {node.lineno}: {lines} lines")
        if num_parameters > MAX_PARAMETERS:
            found.append(f"{node.name}, line {node.lineno}: {num_parameters} parameters")
    return found


def usual_lines(sources: list[str]) -> int:
    """The number of lines that 95 of 100 functions do not exceed."""
    lengths = sorted(lines for source in sources for _, lines in functions_of(source))
    return lengths[ceil(0.95 * len(lengths)) - 1]


def num_lines(path: str | Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("path", all_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    assert num_lines(path) <= MAX_FILE_LINES
    assert oversized_functions(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("package", HOMES)
def test_most_functions_fit_on_half_a_screen(package: str) -> None:
    assert usual_lines([path.read_text(encoding="utf-8") for path in files_of(package)]) <= USUAL_FUNCTION_LINES


def test_comments_stand_where_a_reader_decodes() -> None:
    shares = [comment_share(path.read_text(encoding="utf-8")) for path in all_files()]
    num_comments, num_code = (sum(counts) for counts in zip(*shares, strict=True))
    assert num_comments >= MIN_COMMENTS * num_code


def test_six_files_can_be_read_in_one_sitting() -> None:
    assert sum(map(num_lines, SIX_FILES)) < MAX_SIX_FILES_LINES


def test_the_training_loop_is_one_page() -> None:
    assert num_lines("src/slimrl/trainer/rl/train.py") <= MAX_TRAINING_LOOP_LINES


@pytest.mark.parametrize("document", ["README.md", "docs/structure.md"])
def test_newcomers_are_told_which_six_files_to_read(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [path for path in SIX_FILES if path not in text] == []


def test_a_long_function_is_found() -> None:
    body = "    pass\n" * MAX_FUNCTION_LINES
    assert oversized_functions(f"async def long():\n{body}") == ["long, line 1: 61 lines"]
    assert oversized_functions(f"def short():\n{body.removesuffix('    pass' + chr(10))}") == []


def test_many_parameters_are_found() -> None:
    assert oversized_functions("def f(a, b, c, /, d, e, f, *, g): ...") == ["f, line 1: 7 parameters"]
    assert oversized_functions("class A:\n    def f(self, a, b, c, d, e, f, **options): ...") == []


def test_the_usual_length_is_that_of_95_in_100() -> None:
    short, long = "def f(): ...", "def g():\n    a = 1\n    return a"
    assert usual_lines([short] * 95 + [long] * 5) == 1
    assert usual_lines(["\n".join([short] * 94 + [long] * 6)]) == 3
