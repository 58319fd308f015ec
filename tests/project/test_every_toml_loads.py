"""Every TOML file in the repository is a configuration that loads; its first line is the command that reads it."""

import re
from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import COMMANDS, RLConfig

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Environments, results, and packages, whose data are no recipes.
IGNORED = {
    ".venv",
    ".openenv",
    ".verifiers",
    "node_modules",
    "outputs",
    "runs",
    "data",
    "wandb",
    "dist",
    "build",
    "src",
    "theirs",  # settings of other trainers, for tests
}


EVALUATIONS = {"eval.toml": "rl.toml", "gpu_eval.toml": "gpu.toml"}  # and what is evaluated


def recipes() -> list[Path]:
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*.toml"))
    others = {"pyproject.toml", "pre_tokenizers.toml"}  # the second is a table of GGUF's
    return sorted(path for path in paths if path.name not in others and not IGNORED & set(path.parts))


def test_there_are_recipes() -> None:
    assert Path("configs/debug/rl/train.toml") in recipes()


@pytest.mark.parametrize("recipe", recipes(), ids=str)
def test_recipe_loads(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    first_line = recipe.read_text(encoding="utf-8").split("\n")[0]
    command = re.fullmatch(r"# (?:uv run (?:--extra \S+ )*)?(?:slimrl )?(\w+) @ (\S+)(?: .*)?", first_line)
    assert command, f"{recipe}: the first line must be the command that reads it, `# uv run rl @ {recipe}`"
    assert command[1] in COMMANDS, first_line
    assert command[2] == str(recipe), first_line
    load(COMMANDS[command[1]], ["@", str(recipe)], {})


def evaluations() -> list[Path]:
    """The settings that stand beside what they evaluate."""
    found = [path for path in recipes() if path.name in EVALUATIONS]
    return [path for path in found if (ROOT / path.with_name(EVALUATIONS[path.name])).exists()]


@pytest.mark.parametrize("recipe", evaluations(), ids=str)
def test_an_evaluation_is_the_one_that_training_makes(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alphabet sort alone is evaluated with a higher power, on purpose (its own test)."""
    monkeypatch.chdir(ROOT)
    evaluated = load(COMMANDS["eval"], ["@", str(recipe)], {}).config
    trained = load(RLConfig, ["@", str(recipe.with_name(EVALUATIONS[recipe.name]))], {}).config
    rollout, plan = trained.orchestrator, trained.eval
    without_power = [(env.id, {**env.args, "power": 0}) for env in evaluated.env]
    assert without_power == [(env.id, {**env.args, "power": 0}) for env in rollout.env]
    sampling = evaluated.sampling
    assert (sampling.max_tokens, sampling.stop) == (rollout.sampling.max_tokens, rollout.sampling.stop)
    assert (evaluated.max_turns, evaluated.seq_len) == (rollout.max_turns, trained.seq_len)
    assert (evaluated.num_examples, evaluated.temperatures) == (plan.num_examples, plan.temperatures)
    assert evaluated.model.name == trained.model.name
    assert f"/weights/step_{trained.max_steps}\n" in recipe.read_text(encoding="utf-8")
