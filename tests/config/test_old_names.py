"""Settings whose name has changed: the old name still reads, and a line says what to write now."""

from pathlib import Path

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import Resolved, load
from slimrl.config.reading.names import OLD_NAMES
from slimrl.config.reading.schema import leaves, spec_of
from slimrl.config.run import COMMANDS, EvalRunConfig, RLConfig
from slimrl.errors import UserError

ENV = ["--env.0.id", "reverse-text"]
OLD_FILE = 'max_tokens = 7\nstop = ["</a>", "</b>"]\n[[env]]\nid = "reverse-text"\n'


def evaluation(*argv: str, **environ: str) -> tuple[Resolved[EvalRunConfig], list[str]]:
    """What the command line and the variables resolve to, and the notes about old names."""
    notes: list[str] = []
    return load(EvalRunConfig, argv, environ, notes.append), notes


def test_every_old_name_stands_for_a_setting_that_is_there() -> None:
    for command, table in OLD_NAMES.items():
        known = dict(leaves(spec_of(COMMANDS[command])))
        assert not table.keys() & known.keys()
        assert set(table.values()) <= known.keys()


def test_an_old_flag_reads_and_says_what_to_write() -> None:
    resolved, notes = evaluation(*ENV, "--max_tokens", "7", "--stop.0", "</a>", "--top-p=0.5")
    sampling = resolved.config.sampling
    assert (sampling.max_tokens, sampling.stop, sampling.top_p) == (7, ["</a>"], 0.5)
    [note] = notes
    assert "write --sampling.max_tokens for --max_tokens, --sampling.stop for --stop, --sampling.top_p for" in note
    assert resolved.provenance["sampling.max_tokens"] == "--max_tokens"


def test_an_old_file_reads_and_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(OLD_FILE)
    resolved, notes = evaluation("@", f"{tmp_path}/old.toml")
    assert (resolved.config.sampling.max_tokens, resolved.config.sampling.stop) == (7, ["</a>", "</b>"])
    assert notes == [
        f"{tmp_path}/old.toml: old names that still read; write sampling.max_tokens for max_tokens, "
        "sampling.stop for stop"
    ]
    assert resolved.provenance["sampling.max_tokens"] == f"{tmp_path}/old.toml:1"


@pytest.mark.parametrize("prefix", ["SLIMRL", "PRIME"])
def test_an_old_variable_reads_and_says_what_to_write(prefix: str) -> None:
    resolved, notes = evaluation(*ENV, **{f"{prefix}_TOP_K": "5"})
    assert resolved.config.sampling.top_k == 5
    assert [note.split("; ")[1] for note in notes] == [f"write {prefix}_SAMPLING__TOP_K for {prefix}_TOP_K"]


def test_an_old_variable_of_another_command_is_passed_over() -> None:
    notes: list[str] = []
    load(RLConfig, ["--orchestrator.env.0.id", "reverse-text"], {"SLIMRL_TOP_K": "5"}, notes.append)
    assert not notes


def test_present_names_are_not_spoken_of() -> None:
    assert not evaluation(*ENV, "--sampling.max_tokens", "7")[1]


@pytest.mark.parametrize("present", [["--sampling.max_tokens", "8"], ["--sampling", "{max_tokens = 8}"]])
def test_one_source_with_both_names_is_refused(present: list[str]) -> None:
    with pytest.raises(UserError, match=r"max_tokens \(--max_tokens\) is another name of sampling\.max_tokens"):
        evaluation(*ENV, "--max_tokens", "7", *present)


def test_a_file_with_both_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "both.toml").write_text(f"{OLD_FILE}[sampling]\nmax_tokens = 8\n")
    with pytest.raises(UserError, match=r"both\.toml:1\) is another name .*both\.toml:6\) is set beside it"):
        evaluation("@", f"{tmp_path}/both.toml")
    with pytest.raises(UserError, match=r"SLIMRL_MAX_TOKENS\) is another name"):
        evaluation(*ENV, SLIMRL_MAX_TOKENS="7", SLIMRL_SAMPLING__MAX_TOKENS="8")


def test_a_file_may_have_an_old_name_beside_other_settings_of_the_section(tmp_path: Path) -> None:
    (tmp_path / "mixed.toml").write_text(f"{OLD_FILE}[sampling]\ntop_k = 8\n")
    sampling = evaluation("@", f"{tmp_path}/mixed.toml")[0].config.sampling
    assert (sampling.max_tokens, sampling.top_k) == (7, 8)


def test_a_flag_overrides_what_a_file_says_under_the_other_name(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(OLD_FILE)
    assert evaluation("@", f"{tmp_path}/old.toml", "--sampling.max_tokens", "9")[0].config.sampling.max_tokens == 9
    (tmp_path / "new.toml").write_text("[sampling]\nmax_tokens = 8\n")
    assert evaluation("@", f"{tmp_path}/new.toml", *ENV, "--max_tokens", "9")[0].config.sampling.max_tokens == 9


def test_the_note_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    load(EvalRunConfig, [*ENV, "--max_tokens", "7"], {})
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("slimrl: ") and captured.err.count("\n") == 1


def test_a_wrong_value_names_the_old_flag() -> None:
    with pytest.raises(UserError, match=r"^sampling\.max_tokens \(--max_tokens\): found 0, expected integer >= 1"):
        evaluation(*ENV, "--max_tokens", "0")


@pytest.mark.parametrize("key", ["top_p", "top_k", "min_p"])
def test_training_samples_from_the_whole_distribution(key: str) -> None:
    argv = ["--orchestrator.env.0.id", "reverse-text", f"--orchestrator.sampling.{key}", "0.5"]
    with pytest.raises(UserError, match=rf"--orchestrator\.sampling\.{key}: there is no such setting"):
        load(RLConfig, argv, {})


# The first lines that older versions wrote into a run's directory, with the settings in their order of then.
SAVED = {
    "rl": """max_steps = 3
seq_len = 64
max_async_level = 0
output_dir = "outputs/x"
seed = 1
teacher_gpu_ids = []
[model]
name = "smollm2-135m"
[orchestrator]
batch_size = 64
rollouts_per_example = 8
max_turns = 2
episode_timeout_s = 60.0
[[orchestrator.env]]
id = "reverse-text"
[orchestrator.sampling]
temperature = 1.0
max_tokens = 32
stop = ["</x>"]
[ckpt]
keep = 2
[wandb]
enabled = false
""",
    "sft": 'max_steps = 3\nseq_len = 64\nbatch_size = 2\nmicro_batch_tokens = 64\noutput_dir = "outputs/x"\nseed = 1\n'
    '[model]\ndtype = "float32"\n[data]\ntype = "expert"\n[data.env]\nid = "reverse-text"\n[ckpt]\nkeep = 3\n',
    "trainer": 'max_steps = 3\nseq_len = 64\noutput_dir = "outputs/x"\nseed = 1\n[data]\nbatch_size = 4\n',
    "eval": "num_examples = 4\nmax_tokens = 32\nstop = []\ntop_p = 1.0\ntop_k = 0\nmin_p = 0.0\nmax_turns = 2\n"
    'episode_timeout_s = 60.0\nseq_len = 64\noutput_dir = "outputs/x"\nseed = 1\n[[env]]\nid = "reverse-text"\n',
}


@pytest.mark.parametrize("command", SAVED)
def test_a_saved_file_of_an_older_version_resumes(command: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(SAVED[command])
    config_class: type[CommandConfig] = COMMANDS[command]
    config = load(config_class, ["@", f"{tmp_path}/config.toml", "--resume"], {}).config.model_dump()
    assert (config["seq_len"], config["output_dir"], config["seed"], config["resume"]) == (64, "outputs/x", 1, True)
    if command == "eval":
        assert config["sampling"]["max_tokens"] == 32
    else:
        assert config["max_steps"] == 3
