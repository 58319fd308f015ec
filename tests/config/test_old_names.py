"""Settings whose name has changed: the old name still reads, and a line says what to write now."""

from pathlib import Path

import pytest

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


def test_present_names_and_variables_of_another_command_are_not_noted() -> None:
    notes: list[str] = []
    load(RLConfig, ["--orchestrator.env.0.id", "reverse-text"], {"SLIMRL_TOP_K": "5"}, notes.append)
    assert not notes and not evaluation(*ENV, "--sampling.max_tokens", "7")[1]


def test_a_section_has_old_names_too() -> None:
    notes: list[str] = []
    argv = ["--orchestrator.env.0.id", "reverse-text", "--deployment.sampler_restarts", "7"]
    assert load(RLConfig, argv, {}, notes.append).config.deployment.restarts == 7
    assert notes == ["old names that still read; write --deployment.restarts for --deployment.sampler_restarts"]


@pytest.mark.parametrize("present", [["--sampling.max_tokens", "8"], ["--sampling", "{max_tokens = 8}"]])
def test_one_source_with_both_names_is_refused(present: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"max_tokens \(--max_tokens\) is another name of sampling\.max_tokens"):
        evaluation(*ENV, "--max_tokens", "7", *present)
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
