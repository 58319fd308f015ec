"""The snippets of the README and of the API's page, and the notebook, run as they stand there, on a tiny model."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from slimrl.cli import run

ROOT = Path(__file__).parents[2]
RECIPE = """\
max_steps = 7
seq_len = 160
output_dir = "outputs/reverse_text"
model = {{ name = "{model}", dtype = "float32", num_threads = 1 }}
warmup = {{ max_steps = 1, batch_size = 4 }}
eval = {{ num_examples = 2, temperatures = [0.0, 1.0] }}

[[orchestrator.env]]
id = "reverse-text"
args = {{ style = "code", min_length = 4, max_length = 10 }}

[orchestrator]
batch_size = 8
rollouts_per_example = 4
sampling = {{ temperature = 1.0, max_tokens = 4 }}
"""


@pytest.fixture
def checkout(tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like a checkout, whose first recipe is a tiny one."""
    recipe = tmp_path / "examples" / "reverse_text" / "rl.toml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(RECIPE.format(model=tiny_dir))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def snippets(page: str, language: str = "py(?:thon)?") -> list[str]:
    """The code of a page in a language, in its order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "runs"), [("README.md", ["reverse_text"]), ("docs/api.md", ["reverse_text", "shout"])]
)
def test_the_snippets_of_a_page_run_one_after_the_other(
    page: str, runs: list[str], checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("snippets")  # as `__main__` is a notebook's
    monkeypatch.setitem(sys.modules, "snippets", module)
    for code in snippets(page):
        exec(compile(code, page, "exec"), vars(module))
    for name in runs:
        last = (checkout / "outputs" / name / "metrics.jsonl").read_text().splitlines()[-1]
        assert json.loads(last)["step"] == 5
    if page == "docs/api.md":
        assert (checkout / "outputs" / "shout_eval" / "results.json").exists()


@pytest.mark.slow
def test_the_commands_of_the_readme_run_one_after_the_other(checkout: Path) -> None:
    (checkout / "shout.py").write_text(snippets("README.md")[0])
    lines = "".join(snippets("README.md", "bash")).splitlines()
    commands = [line.removeprefix("uv run ") for line in lines if line.startswith("uv run")]
    assert len(commands) == 4
    for command in commands:
        assert run(shlex.split(command)) == 0, command
    for name in ("look", "shout", "rloo"):
        assert (checkout / "outputs" / name / "summary.json").exists()


@pytest.mark.slow
def test_the_notebook_of_the_first_run_runs_from_top_to_bottom(checkout: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs a notebook's kernel: `uv run --group docs pytest`")
    client = pytest.importorskip("nbclient", reason="needs a notebook's kernel: `uv run --group docs pytest`")
    shutil.copy(ROOT / "examples" / "first_run.ipynb", checkout / "examples")
    notebook = nbformat.read(checkout / "examples" / "first_run.ipynb", as_version=4)
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(checkout / "examples")}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2  # the curve, and a group of rollouts
    assert any("TrainingResult in " in output.get("data", {}).get("text/plain", "") for output in outputs)
    assert [output for output in outputs if output.output_type == "error"] == []
