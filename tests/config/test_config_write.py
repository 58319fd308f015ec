"""What is written loads back to what it was."""

import tomllib
from pathlib import Path

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import Resolved, load
from slimrl.config.reading.saved import config_toml, flat_settings, read_flat_settings, write_config
from slimrl.config.run import COMMANDS, EvalRunConfig, RLConfig

REQUIRED = {
    "rl": ["--orchestrator.env.0.id", "reverse-text"],
    "sft": ["--data.type", "file", "--data.path", "chats.jsonl"],
    "trainer": [],
    "eval": ["--env.0.id", "reverse-text"],
    "inference": [],
    "probe": ["--orchestrator.env.0.id", "reverse-text", "--teacher.type", "model", "--teacher.name", "larger"],
    "play": ["--id", "reverse-text", "--args.style", "word", "--task", "3"],
    "check": ["--env.0.id", "reverse-text"],
}


def check_comparison(resolved: Resolved[CommandConfig], path: Path) -> None:
    """A resumed run compares the text of the file, key by key, with its own settings."""
    flat = flat_settings(resolved.config)
    flat.pop("resume", None)
    assert read_flat_settings(path.parent, resolved.config.command) == flat


@pytest.mark.parametrize("config_class", COMMANDS.values(), ids=list(COMMANDS))
def test_written_configuration_loads_back_equal(config_class: type[CommandConfig], tmp_path: Path) -> None:
    resolved = load(config_class, REQUIRED[config_class.command], {})
    path = write_config(resolved, tmp_path / "new" / "run")
    assert path == tmp_path / "new" / "run" / "config.toml"
    assert load(config_class, ["@", str(path)], {}).config == resolved.config
    assert path.read_text().startswith(f"# slimrl {config_class.command} @ ")
    check_comparison(resolved, path)
    assert [entry.name for entry in path.parent.iterdir()] == ["config.toml"]


def test_a_secret_is_never_written_down() -> None:
    resolved = load(COMMANDS["inference"], [], {"SLIMRL_API_KEY": "hush"})
    text = config_toml(resolved)
    assert "hush" not in text
    assert "# api_key is set, and not written here  # SLIMRL_API_KEY\n" in text
    assert 'api_key = ""' in config_toml(load(COMMANDS["inference"], [], {}))


def test_resuming_is_asked_for_at_each_start_and_never_written_down(tmp_path: Path) -> None:
    for command in ("rl", "sft", "trainer"):
        resolved = load(COMMANDS[command], [*REQUIRED[command], "--resume"], {})
        path = write_config(resolved, tmp_path)
        again = load(COMMANDS[command], ["@", str(path)], {}).config
        assert again == resolved.config.model_copy(update={"resume": False})
        assert "resume" not in tomllib.loads(path.read_text())


def test_awkward_values_load_back_equal(tmp_path: Path) -> None:
    args = (
        '{"text": "a \\"quote\\" \\\\ \\n\\t \\u007f \\u0001 é 語 #", "a key.with = signs": [1, 2.5, -1e300, true, []],'
        ' "deep": {"er": [{"x": 1}]}, "empty": {}, "big": 123456789012345678, "": "empty key"}'
    )
    argv = ["--env.0.id", "a#b", "--env.0.args", args, "--env.1.id", "c", "--episode_timeout_s", "1e16"]
    resolved = load(EvalRunConfig, argv, {})
    path = write_config(resolved, tmp_path)
    assert load(EvalRunConfig, ["@", str(path)], {}).config == resolved.config
    check_comparison(resolved, path)
    assert load(EvalRunConfig, ["@", str(path)], {}).config.env[0].args["deep"] == {"er": [{"x": 1}]}


def test_comments_say_where_settings_came_from(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[trainer.optim]\nlr = 0.5\n[[orchestrator.env]]\nid = "x"\nargs = { n = 1 }\n')
    argv = ["@", str(file), "--orchestrator.env.0.args.m", "2", "--eval.temperatures", "[0.5]"]
    text = config_toml(load(RLConfig, argv, {"SLIMRL_SEED": "3"}))
    tomllib.loads(text)
    lines = text.splitlines()
    assert f"lr = 0.5  # {file}:2" in lines
    assert "seed = 3  # SLIMRL_SEED" in lines
    assert "temperatures = [0.5]  # --eval.temperatures" in lines
    assert f'id = "x"  # {file}:4' in lines
    assert f"args = {{n = 1, m = 2}}  # {file}:5, --orchestrator.env.0.args.m" in lines
    assert "max_steps = 100" in lines


def test_a_run_that_is_resumed_by_its_own_file_keeps_the_first_origins(tmp_path: Path) -> None:
    recipe, run = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text('seed = 3\n[model]\nname = "a \\"#\\" # b"\n[[orchestrator.env]]\nid = "reverse-text"\n')
    flags = ["--orchestrator.env.0.args", '{"length": "# c"}', "--max_steps", "20"]
    path = write_config(load(RLConfig, ["@", str(recipe), *flags], {}), run)
    first = path.read_text()
    write_config(load(RLConfig, ["@", str(path), "--resume"], {}), run)
    assert path.read_text() == first
    write_config(load(RLConfig, ["@", str(path), "--resume", "--trainer.optim.lr", "0.5"], {"SLIMRL_SEED": "9"}), run)
    assert "lr = 0.5  # --trainer.optim.lr\n" in path.read_text()
    assert f"seed = 3  # {recipe}:1\n" in path.read_text()
    path.write_text(path.read_text().replace("max_steps = 20", "max_steps = 30"))
    write_config(load(RLConfig, ["@", str(path), "--resume"], {}), run)
    assert f"max_steps = 30  # {path}:" in path.read_text()
