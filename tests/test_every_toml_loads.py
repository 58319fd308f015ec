"""Every TOML file in the repository is a configuration that loads; its first line is the command that reads it."""

import re
from pathlib import Path

import pytest

from slimrl.config.load import load
from slimrl.config.run import COMMANDS

ROOT = Path(__file__).parents[1]
IGNORED = {".venv", "outputs", "runs", "data", "wandb", "dist", "build"}


def recipes() -> list[Path]:
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*.toml"))
    return sorted(path for path in paths if path.name != "pyproject.toml" and not IGNORED & set(path.parts))


def test_there_are_recipes() -> None:
    assert Path("configs/debug/rl/train.toml") in recipes()


@pytest.mark.parametrize("recipe", recipes(), ids=str)
def test_recipe_loads(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    first_line = recipe.read_text(encoding="utf-8").split("\n")[0]
    command = re.fullmatch(r"# (?:uv run )?(?:slimrl )?(\w+) @ (\S+)(?: .*)?", first_line)
    assert command, f"{recipe}: the first line must be the command that reads it, `# uv run rl @ {recipe}`"
    assert command[1] in COMMANDS, first_line
    assert command[2] == str(recipe), first_line
    load(COMMANDS[command[1]], ["@", str(recipe)], {})
