"""A settings file of prime-rl is translated key by key, and no key is passed over."""

import json
import re
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import load
from slimrl.config.reading.schema import locate, spec_of
from slimrl.config.reading.sources import from_file
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.errors import UserError
from slimrl_tools.commands.translate import run_translate
from slimrl_tools.prime_rl.keys import RL_KEYS, SFT_KEYS, Table, find_outcome, is_listed
from tests.adversary.test_inputs import LEAKS, SECRET, refusal, write_leak
from tests.project.distributions import ROOT
from tests.project.pages import unknown_settings

# Settings files as users of prime-rl have them, three of each dialect, each with what it comes to here (`.json`).
THEIRS = Path(__file__).parent / "theirs"
SMALLEST = (THEIRS / "hosted_the_smallest.toml").read_text()


def read(config_class: type[CommandConfig], text: str, directory: Path, *argv: str) -> tuple[CommandConfig, list[str]]:
    """The configuration that a file comes to, and the lines that say how."""
    (directory / "theirs.toml").write_text(text)
    notes: list[str] = []
    return load(config_class, ["@", str(directory / "theirs.toml"), *argv], {}, notes.append).config, notes


def value_of(config: CommandConfig, key: str) -> object:
    """The value of a setting, as plain data."""
    value: object = config.model_dump()
    for part in key.split("."):
        value = value[part]  # type: ignore[index]
    return value


@pytest.mark.parametrize("name", sorted(path.stem for path in THEIRS.glob("*.json")))
def test_a_file_reads_as_it_stands_and_every_key_is_in_the_report(name, tmp_path, capsys):
    expected = json.loads((THEIRS / f"{name}.json").read_text())
    config_class = SFTConfig if name.startswith("sft") else RLConfig
    config, notes = read(config_class, (THEIRS / f"{name}.toml").read_text(), tmp_path)
    assert {key: value_of(config, key) for key in expected} == expected
    assert "has names of prime-rl's" in notes[0]
    report = "\n".join(notes)
    for setting in from_file(str(tmp_path / "theirs.toml")):
        key = re.sub(r"\.(\d+)", r"[\1]", ".".join(setting.path))
        if setting.value not in ({}, []) and not setting.path[-1].isdecimal():
            assert re.search(rf"^ +{re.escape(key)} = ", report, re.MULTILINE), key
    # The written translation reads to the same.
    assert run_translate([str(tmp_path / "theirs.toml")]) == 0
    shown, notes = capsys.readouterr(), []
    (tmp_path / "mine.toml").write_text(shown.out)
    again = load(config_class, ["@", str(tmp_path / "mine.toml")], {}, notes.append).config
    assert again == config and not any("prime-rl" in note for note in notes)
    assert "renamed:" in shown.err


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("[buffer]\neasy_threshold = 0.8\n", "buffer.easy_threshold"),
        ('env_file = ["secrets.env"]\n', "env_file"),
        ("no_such_key = 1\n", "no_such_key"),
        ("[tokenizer]\nchat_template = 'x'\n", "tokenizer.chat_template"),
        ("[trainer.optim]\ntype = 'muon'\n", "trainer.optim.type"),
        ("[trainer.model.lora]\ndropout = 0.1\n", "trainer.model.lora.dropout"),
        ("[ckpt]\nresume_step = 20\n", "ckpt.resume_step"),
        ("[inference]\nmax_slot = 3\n", "inference.max_slot"),
        ("[[eval.env]]\nid = 'primeintellect/aime2024'\n", "eval.env[0].id"),
        ("[orchestrator.advantage]\ntype = 'custom'\n", "orchestrator.advantage.type"),
        ("[[orchestrator.filters]]\ntype = 'gibberish'\nenforce = true\n", "orchestrator.filters[0].enforce"),
        ("[orchestrator.sampling]\nrepetition_penalty = 1.1\n", "orchestrator.sampling.repetition_penalty"),
    ],
)
def test_a_key_that_cannot_be_done_stops_with_its_name(more, key, tmp_path, capsys):
    own = more + SMALLEST if "[" not in more.partition("=")[0] else SMALLEST + more
    with pytest.raises(UserError, match=rf"- {re.escape(key)} = .*theirs\.toml:\d+\): ") as caught:
        read(RLConfig, own, tmp_path)
    assert "Remove these keys" in str(caught.value)
    with pytest.raises(UserError, match=re.escape(key)):
        run_translate([str(tmp_path / "theirs.toml")])
    assert capsys.readouterr().out == ""


def test_an_environment_that_is_not_here_stops_with_the_ones_that_are(tmp_path):
    with pytest.raises(UserError, match="slimrl has no environment `gsm8k`, but alphabet-sort, matching-game"):
        read(RLConfig, SMALLEST.replace("reverse-text", "gsm8k"), tmp_path)


def test_keys_that_become_one_setting_are_read_and_the_last_one_counts(tmp_path):
    models = "".join(f"[{part}.model]\nname = 'm'\n" for part in ("trainer", "orchestrator", "inference"))
    runs = "".join(f"[{part}.wandb]\nname = '{part}'\n" for part in ("trainer", "orchestrator"))
    env = "[[orchestrator.env]]\nid = 'reverse-text'\n"
    config, _ = read(RLConfig, models + runs + env, tmp_path)
    assert value_of(config, "model.name") == "m" and value_of(config, "wandb.name") == "orchestrator"


def test_the_report_says_which_defaults_are_ours(tmp_path):
    _, notes = read(RLConfig, SMALLEST, tmp_path)
    left_open = notes[notes.index("  not in the file, and another default here:") :]
    assert any("trainer.optim.weight_decay: 0.01 there, 0 here" in line for line in left_open)
    assert not any("orchestrator.sampling.max_tokens" in line for line in left_open)


def test_flags_go_on_top_of_a_translated_file(tmp_path):
    config, _ = read(RLConfig, SMALLEST, tmp_path, "--max_steps", "3", "--orchestrator.group_size", "16")
    assert (value_of(config, "max_steps"), value_of(config, "orchestrator.rollouts_per_example")) == (3, 16)


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        (["--resume.step", "-1"], "resume", True),
        (["--ckpt"], "ckpt.interval_steps", 10),
        (["--ckpt.interval", "7"], "ckpt.interval_steps", 7),
        (["--wandb"], "wandb.enabled", True),
        (["--model", "123"], "model.name", "123"),
        (["--trainer.model.lora.rank", "4"], "model.lora.rank", 4),
        (["--orchestrator.eval.interval", "5"], "eval.interval_steps", 5),
    ],
)
def test_a_flag_of_prime_rl_reads(flags, key, value):
    config = load(RLConfig, ["--orchestrator.env.0.id", "reverse-text", *flags], {}, lambda note: None).config
    assert value_of(config, key) == value


@pytest.mark.parametrize(
    ("flag", "message"),
    [("--clean", "delete the directory yourself"), ("--bench", "`slimrl trainer` measures the trainer alone")],
)
def test_a_flag_that_cannot_be_done_is_answered_by_what_can(flag, message, tmp_path, capsys):
    recipe = ROOT / "examples" / "reverse_text" / "rl.toml"
    assert run(["rl", "@", str(recipe), flag, "--output_dir", str(tmp_path / "new")]) == 2
    assert f"({flag}): {message}" in capsys.readouterr().err


def test_a_file_of_its_own_is_not_translated(tmp_path, capsys):
    (tmp_path / "own.toml").write_text('max_steps = 3\n[[orchestrator.env]]\nid = "reverse-text"\n')
    assert run_translate([str(tmp_path / "own.toml")]) == 0
    assert "is a settings file of slimrl's already" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("leak", LEAKS)
def test_no_secret_is_said(leak, tmp_path, capsys):
    write_leak(leak, tmp_path / "a.json")
    assert SECRET not in refusal(["translate", str(tmp_path / "a.json")], capsys)


def test_the_file_of_the_original_design_reads_as_it_stands():
    notes: list[str] = []
    argv = ["@", str(THEIRS / "design.toml"), "--trainer_gpu_ids", "0", "--inference_gpu_ids", "1"]
    config = load(RLConfig, argv, {}, notes.append).config
    assert (config.model.lora.rank, config.model.lora.targets) == (32, ["q_proj", "v_proj"])
    assert (config.trainer_gpu_ids, config.inference_gpu_ids) == ([0], [1])
    assert config.wandb.is_on and config.max_async_level == 2
    assert not notes


def is_read(name: str) -> bool:
    """Whether a name is one of prime-rl's that slimrl reads, or a section of such names."""
    return is_listed(RL_KEYS, tuple(name.split("."))) or any(key.startswith(f"{name}.") for key in RL_KEYS)


def test_every_setting_that_the_page_names_is_slimrls_or_is_read() -> None:
    named = unknown_settings(ROOT / "docs" / "prime_rl.md")
    assert len(named) > 5
    assert [name for name in named if not is_read(name)] == []


@pytest.mark.slow
@pytest.mark.parametrize(("table", "config_class"), [(RL_KEYS, RLConfig), (SFT_KEYS, SFTConfig)])
def test_every_new_name_is_a_setting(table: Table, config_class: type[CommandConfig]):
    """Each rule is tried with values of several types; whatever name it gives must exist."""
    root, found = spec_of(config_class), 0
    for pattern in table:
        path = tuple("0" if key == "*" else "x" if key == "**" else key for key in pattern.split("."))
        for value in (1, "reverse-text", ["q_proj"], -1, False):
            try:
                outcome = find_outcome(table, path, value, {})
            except (TypeError, ValueError):
                continue  # a value of another type than the key has
            if outcome and outcome.kind == "renamed":
                found += 1
                locate(root, outcome.path, pattern)
    assert found > 50
