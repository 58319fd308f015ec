"""Settings, texts and models of others (F12, F14, F15): each is read, or refused in a line that may be printed."""

import io
import json
import os
import shutil
import signal
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.panel import Panel
from rich.table import Table
from safetensors.torch import load_file, save_file

from slimrl.cli import _interrupt_advice, run
from slimrl.config.model import ModelConfig
from slimrl.config.reading.load import load
from slimrl.config.reading.saved import config_toml
from slimrl.config.run import RLConfig
from slimrl.errors import RolloutError, UserError, visible
from slimrl.io.rows import file_rows
from slimrl.models.load import load_policy
from slimrl.models.resolve import resolve
from slimrl.models.tensor_file import DTYPES
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import read_metrics
from slimrl.plugins import Command
from slimrl.trainer.checkpoint import progress_in

pytestmark = pytest.mark.slow

# A colour, the clipboard, an 8-bit command, an order of letters, a deletion, a carriage return, what nobody sees.
ESCAPES = "\x1b[31m", "\x1b]52;c;aGk=\x07", "\x9b2J", "\u202egpj.exe", "a\u2066b", "\x7f\x08", "ok\rno", "l\u200br"

HANGS_S = 60.0  # even on a busy machine


@pytest.mark.parametrize("text", ESCAPES)
def test_no_command_to_the_terminal_is_printed(text, capsys, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(f'"{text.encode("unicode_escape").decode()}" = 1\n'.replace("\\x", "\\u00"))
    for argv in ([text], ["rl", text], ["rl", f"--{text}", "1"], ["rl", "--max_steps", text], ["rl", "@", str(file)]):
        assert run(argv) == 2
    screen = io.StringIO()
    console = RunConsole(screen)
    console.note(text)
    console.show(Panel(text, title=text))
    table = Table(text, title=text)
    table.add_row(text)
    console.show(table)
    with console.progress(text, 1) as bar:
        bar.advance(info=text)
    shown = "".join(capsys.readouterr()) + screen.getvalue() + str(RolloutError("environment_error", text))
    assert text not in shown
    assert all(char.isprintable() or char == "\n" for char in shown)


def test_what_is_shown_is_bounded_and_stays_itself():
    for text in (*ESCAPES, "日本\u3000語\n\tx", "x" * 10**7):
        assert len(visible(text)) < 30_000
        assert visible(visible(text)) == visible(text) or len(text) > 20_000
    assert visible("日本\u3000語\n\t\xa0x") == "日本\u3000語\n\t\xa0x"
    detail = RolloutError("environment_error", "x" * 10**7).detail
    assert len(detail) < 3000
    assert RolloutError("environment_error", detail).detail == detail and detail.endswith(
        "… (9,998,050 more characters)"
    )


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Ends what hangs, and fails for what computes longer."""
    began = time.thread_time()
    handler = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("hangs"))
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert time.thread_time() - began < seconds


def refusal(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The line with which a command refuses what it is given."""
    with at_most(6):
        assert run(argv) == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith("slimrl: ")
    assert len(said.err) < 3_000
    return said.err


# Files of settings, each with the words of its refusal. A text may be in pieces, of which some are repeated.
FILES = Path(__file__).with_name("settings_files.jsonl").read_text("utf-8").splitlines()
BLOCKS = "\n".join(" " * i + "a:" for i in range(1_000))


def text_of(pieces: str | list[Any]) -> str:
    return "".join(piece if isinstance(piece, str) else piece[0] * piece[1] for piece in pieces)


@pytest.mark.parametrize(
    "file",
    [*map(json.loads, FILES), {"name": "block.yaml", "text": BLOCKS, "said": "nested too deep"}],
    ids=lambda file: file["name"],
)
def test_settings_beyond_all_measure_are_refused_in_a_line(file, tmp_path, monkeypatch, capsys):
    (tmp_path / file["name"]).write_text(text_of(file["text"]))
    monkeypatch.chdir(tmp_path)
    assert file["said"] in refusal(["rl", "@", file["name"], "--dry-run"], capsys)


VALUES = {
    "arrays": ("[" * 50_000 + "]" * 50_000, "nested too deep"),
    "tables": ("{a=" * 20_000 + "1" + "}" * 20_000, "nested too deep"),
    "objects": ('{"a":' * 20_000 + "1" + "}" * 20_000, "expected integer >= 1"),
    "digits": ("9" * 5_000, "expected integer >= 1"),
    "hex": ("0x" + "f" * 5_000, "more than 64 bits"),
    "nul": ("{a = '\0'}", "found"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_beyond_all_measure_are_refused_in_a_line(kind, monkeypatch, capsys):
    value, said = VALUES[kind]
    monkeypatch.delenv("SLIMRL_ORCHESTRATOR__ENV", raising=False)
    assert said in refusal(["rl", "--orchestrator.env.0.args.x.0", value, "--dry-run", "--max_steps", value], capsys)
    if "\0" not in value:
        monkeypatch.setenv("SLIMRL_MAX_STEPS", value)
        assert said in refusal(["rl", "--dry-run"], capsys)


def test_a_pipe_a_device_and_a_directory_are_no_files(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    irregular = "not a regular file"
    for target, said in (("pipe", irregular), ("/dev/zero", irregular), ("directory", "a directory")):
        for suffix in (".toml", ".yaml", ".json", ".jsonl"):
            (tmp_path / f"x{suffix}").symlink_to(tmp_path / target)
        for suffix in (".toml", ".yaml", ".json"):
            assert said in refusal(["rl", "@", str(tmp_path / f"x{suffix}")], capsys)
        with at_most(2), pytest.raises(UserError, match=f"(?i){said}.*data.path"):
            next(file_rows(tmp_path / "x.jsonl", "data.path"))
        for suffix in (".toml", ".yaml", ".json", ".jsonl"):
            (tmp_path / f"x{suffix}").unlink()


def test_pipes_among_the_files_of_a_run_are_refused_in_a_line(tmp_path):
    for read, name in ((read_metrics, "metrics.jsonl"), (lambda path: progress_in(path.parent), "progress.json")):
        os.mkfifo(tmp_path / name)
        with at_most(2), pytest.raises(UserError, match="not a regular file"):
            read(tmp_path / name)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "U16"])
def test_a_model_that_has_been_made_smaller_is_whole(dtype, tmp_path, tiny_dir):
    shutil.copytree(tiny_dir, tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["scales"] = torch.zeros(8, 16).to(DTYPES[dtype])
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert resolve(str(tmp_path)) == tmp_path


def test_rows_beyond_all_measure_are_texts_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    deep = "[" * 100 + "]" * 100
    odd = ["[" * 10**5, "9" * 5_000, deep, "\0", '{"a": 1']
    path.write_text("\n".join([*odd, '{"a": "\u2028"}']))
    with at_most(2):
        rows = [row for row, _ in file_rows(path, "data.path")]
    assert rows == [*odd, {"a": "\u2028"}]
    path.write_bytes(b"\xef\xbb\xbf{}\r\n" + b" " * (2**24 + 1))
    with pytest.raises(UserError, match=r"rows.jsonl:2 is longer than the 16 MiB"):
        list(file_rows(path, "data.path"))
    path.write_text(json.dumps({"a": "x" * 2**20}))
    assert len(list(file_rows(path, "data.path"))) == 1


SECRET = "hunter2-5ecret"
ENV = "--orchestrator.env.0.id", "dataset"  # which may have a judge
REVERSE = "--orchestrator.env.0.id", "reverse-text"
JUDGE = "orchestrator.env.0.args.judge"
# Settings with a secret.
LINES = Path(__file__).with_name("leaks.jsonl").read_text("utf-8").replace("SECRET", SECRET)
LEAKS = {one["leak"]: (one["key"], one["value"]) for one in map(json.loads, LINES.splitlines())}


def write_leak(leak: str, file: Path) -> None:
    """Writes a file of settings with this one of the leaks."""
    key, value = LEAKS[leak]
    tree: Any = tomllib.loads(f"x = {value}")["x"] if value[0] in "[{" and value[-1] in "]}" else value
    for part in reversed(key.split(".")):
        tree = [tree] if part == "0" else {part: tree}
    file.write_text(json.dumps(tree))


@pytest.mark.parametrize("leak", LEAKS)
def test_no_secret_is_written_or_said(leak, tmp_path, monkeypatch, capsys):
    key, value = LEAKS[leak]
    monkeypatch.chdir(tmp_path)
    out = ["--output_dir", "out"]
    (tmp_path / "in").mkdir()
    write_leak(leak, tmp_path / "in" / "a.json")
    (tmp_path / "in" / "a.yaml").write_text(f"{key}: !!int {json.dumps(value)}")
    for argv in (
        ["rl", *ENV, *out, f"--{key}", value],
        ["rl", *ENV, *out, f"--{key}={value}"],
        ["rl", *ENV, *out, f"--{key}", value, "--dry-run"],
        ["rl", *out, "@", "in/a.json"],
        ["rl", *out, "@", "in/a.yaml"],
    ):
        assert SECRET not in refusal(argv, capsys)
    if "env.0" not in key or "env.0.args" in key:
        monkeypatch.setenv(f"SLIMRL_{key.replace('.', '__').upper()}", value)
        assert SECRET not in refusal(["rl", *ENV, *out], capsys)
    assert not (tmp_path / "out").exists()


def test_a_refused_secret_is_said_to_stand_where_it_stands(capsys):
    assert f"--{JUDGE})" in refusal(["rl", *ENV, f"--{JUDGE}", f'{{api_key = "{SECRET}"}}'], capsys)


def test_an_error_in_a_line_of_a_settings_file_has_no_secret(tmp_path, capsys):
    file = tmp_path / "a.toml"
    for line in (
        f"api_key = {SECRET}",
        f"x = {{\"password\" : '{SECRET}'",
        f'base_url = "http://me:{SECRET}@h/?sig={SECRET}',
    ):
        file.write_text(line)
        assert SECRET not in refusal(["rl", "@", str(file)], capsys)


def test_the_advice_after_an_interruption_has_no_secret():
    words = ["inference", "--api_key", SECRET, f"--api-key={SECRET}", "--port", "1"]
    said = _interrupt_advice(Command(""), words)
    assert SECRET not in said
    assert "--port 1" in said


def test_names_of_variables_and_of_tokens_are_no_secrets():
    args = "{judge = {base_url = 'http://h/v1', api_key_variable = 'KEY'}, eos_token = '</s>', max_tokens = '3'}"
    resolved = load(RLConfig, [*ENV, "--orchestrator.env.0.args", args], {})
    assert "api_key_variable" in config_toml(resolved)


def with_code(directory: Path, file: str, **changes: Any) -> Path:
    path = directory / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    (directory / "own.py").write_text(f"open({str(directory / 'ran')!r}, 'w')\nclass C: pass\n")
    return directory


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"model_type": "evil", "auto_map": {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.C"}}),
        ("config.json", {"model_type": "evil", "auto_map": {"AutoConfig": "someone/else--own.C"}}),
        ("config.json", {"auto_map": {"AutoModelForCausalLM": "own.C"}}),  # a known architecture is transformers' own
        ("tokenizer_config.json", {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["own.C", None]}}),
    ],
)
def test_a_model_s_own_code_is_neither_run_nor_asked_for(file, changes, tmp_path, tiny_dir, monkeypatch):
    directory = with_code(shutil.copytree(tiny_dir, tmp_path / "model"), file, **changes)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with nullcontext() if "model_type" not in changes and file == "config.json" else pytest.raises(UserError):
        load_policy(ModelConfig(name=str(directory), device="cpu", dtype="float32"))
    assert not (directory / "ran").exists()


NAMES = ("x" * 300, "~nobody-of-this-name/x", "a/" * 1_000, "\0", "./x\udc80")


def test_names_that_no_file_can_have_are_refused_in_a_line(capsys):
    for name in NAMES:
        for argv in (["rl", *REVERSE, "--model.name", name], ["rl", "@", f"{name}.toml"]):
            refusal([*argv, "--dry-run"], capsys)
    said = refusal(["rl", "--orchestrator.env.0.id", f"{'x' * 300}.py:Own", "--dry-run"], capsys)
    assert "does not exist" in said and "ended its process" not in said


def test_json_of_a_model_that_is_nested_too_deep_is_refused(tmp_path, tiny_dir):
    directory = shutil.copytree(tiny_dir, tmp_path / "deep")
    (directory / "tokenizer.json").write_text("[" * 10**5)
    with pytest.raises(UserError, match=r"tokenizer\.json is JSON that is nested too deep"):
        resolve(str(directory))
