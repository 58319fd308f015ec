"""Every mistake is one UserError that names the key, the place, what was found and what is expected."""

from pathlib import Path

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.check import CheckConfig
from slimrl.config.play import PlayConfig
from slimrl.config.reading.load import load
from slimrl.config.run import EvalRunConfig, RLConfig, SFTConfig
from slimrl.errors import UserError

ENV = ["--orchestrator.env.0.id", "reverse-text"]


def error_of(config_class: type[CommandConfig], argv: list[str], **environ: str) -> str:
    with pytest.raises(UserError) as caught:
        load(config_class, argv, environ)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("max_stps = 3", ["max_stps (FILE:3)", "no such setting", "`max_steps`"]),
        ("lr = 3", ["lr (FILE:3)", "`trainer.optim.lr` or `warmup.optim.lr`"]),
        ("trainer.optim.betas = 3", ["trainer.optim.betas (FILE:3)", "Did you mean `trainer.optim.beta1`"]),
        ("trainr.optim.lr = 3", ["trainr (FILE:3)", "Did you mean `trainer`?"]),
        ("wandb.colour = 3", ["wandb.colour (FILE:3)", "Known: enabled, entity, name, project"]),
        ("seed.x = 3", ["seed.x (FILE:3)", "seed is integer >= 0 and has no settings inside it"]),
        ('max_steps = "3"', ['max_steps (FILE:3): found "3", expected integer >= 1']),
        ("max_steps = 3.5", ["max_steps (FILE:3): found 3.5, expected integer >= 1"]),
        ("max_steps = true", ["max_steps (FILE:3): found true, expected integer >= 1"]),
        ("max_steps = 0", ["max_steps (FILE:3): found 0, expected integer >= 1"]),
        ("resume = 1", ["resume (FILE:3): found 1, expected true or false"]),
        ("model.name = 3", ["model.name (FILE:3): found 3, expected text"]),
        ("model.num_threads = 0", ['model.num_threads (FILE:3): found 0, expected "auto" or integer >= 1']),
        ('model.dtype = "fp16"', ['found "fp16", expected one of "auto", "bfloat16", "float32"']),
        ("trainer.optim.lr = nan", ["trainer.optim.lr (FILE:3)", "expected number > 0"]),
        ("trainer.optim.beta1 = 1.0", ["found 1.0, expected number >= 0 and < 1"]),
        ("eval.temperatures = true", ["eval.temperatures (FILE:3): found true, expected list of numbers >= 0"]),
        (
            "eval.temperatures = []",
            ["eval.temperatures (FILE:3): found [], expected list of numbers >= 0, at least one"],
        ),
        ('eval.temperatures = [\n  0.0,\n  "x",\n]', ['eval.temperatures.1 (FILE:3): found "x", expected number >= 0']),
        ("trainer = 3", ["trainer (FILE:3): found 3, expected a section"]),
        (
            "[[eval]]\nnum_examples = 3",
            ["eval (FILE:3): found a list, expected a section. Write `[eval]` with one bracket."],
        ),
        ('[orchestrator.env]\nid = "x"', ["orchestrator.env (FILE:3)", "Write `[[orchestrator.env]]`"]),
        ('[[orchestrator.env]]\nid = "x"\ncolor = 3', ["orchestrator.env.0.color (FILE:5)", "Known: args, id"]),
        ("[[orchestrator.env]]\nid = 3", ["orchestrator.env.0.id (FILE:4): found 3, expected text"]),
        (
            "[[orchestrator.env]]\nargs = 3\nid = 'x'",
            ["orchestrator.env.0.args (FILE:4): found 3, expected a dictionary"],
        ),
        ("[[orchestrator.env]]", ["orchestrator.env.0.id is not set, expected text"]),
        ("wandb.name = 2020-01-01", ["wandb.name (FILE:3): found 2020-01-01, a date, expected text"]),
    ],
)
def test_mistake_in_a_file_names_its_line(line: str, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f"# a comment\n\n{line}\n", encoding="utf-8")
    environ = {} if "orchestrator.env" in line else {"SLIMRL_ORCHESTRATOR__ENV": '[{id="x"}]'}
    message = error_of(RLConfig, ["@", str(path)], **environ)
    for part in parts:
        assert part.replace("FILE", str(path)) in message


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".yaml", "# a comment\ntrainer:\n  optim:\n    lr: fast\n"),
        (".json", '{\n "trainer": {\n  "optim": {\n\t"lr":"fast"}}}'),
        (".json", '{"seed": 1,\n\n\n "trainer": {"optim": {"lr": "fast"}}}'),
    ],
)
def test_yaml_and_json_know_their_lines(suffix: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"c{suffix}"
    path.write_text(text, encoding="utf-8")
    assert f'trainer.optim.lr ({path}:4): found "fast", expected number > 0.' in error_of(
        RLConfig, [*ENV, "@", str(path)]
    )


def test_line_numbers_survive_nested_arrays_of_tables(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[[orchestrator.env]]\nid = "a"\n[[orchestrator.env.args.rows]]\nn = 1\n[[orchestrator.env]]\nid = "b"\n'
        '[[orchestrator.env.args.rows]]\nn = 2\n[[orchestrator.env.args.rows]]\nn = """\n[x]\n"""\n',
        encoding="utf-8",
    )
    provenance = load(RLConfig, ["@", str(path)], {}).provenance
    lines = {key: int(origin.rpartition(":")[2]) for key, origin in provenance.items()}
    assert lines["orchestrator.env.0.args.rows.0.n"] == 4
    assert lines["orchestrator.env.1.id"] == 6
    assert lines["orchestrator.env.1.args.rows.0.n"] == 8
    assert lines["orchestrator.env.1.args.rows.1.n"] == 10


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lr", "3"], "--lr: there is no such setting. Did you mean `trainer.optim.lr` or `warmup.optim.lr`?"),
        (["--optim.lr", "3"], "--optim.lr: there is no such setting. Did you mean `trainer.optim.lr` or"),
        (["--trainr.optim.lr", "3"], "--trainr.optim.lr: there is no such setting. Did you mean `trainer.optim.lr`?"),
        (["--max-stps", "3"], "max_stps (--max-stps): there is no such setting. Did you mean `max_steps`?"),
        (["--max_steps"], "--max_steps: no value follows, expected integer >= 1."),
        (["--max_steps", "--seed", "1"], "--max_steps: no value follows"),
        (["--max_steps", "@", "f"], "--max_steps: no value follows"),
        (["--max_steps", "many"], '--max_steps: found "many", expected integer >= 1.'),
        (["--trainer.optim.lr", "nan"], "--trainer.optim.lr: found NaN, expected number > 0."),
        (["--resume", "maybe"], '--resume: found "maybe", expected true or false.'),
        (["--eval"], "--eval: this is a section. Set something in it (`--eval.interval_steps`"),
        (["--trainer", "3"], "--trainer: found 3, expected a section."),
        (["--no-max_steps"], "--no-max_steps: max_steps is integer >= 1, so it cannot be turned off."),
        (["--no-resum"], "resum (--no-resum): there is no such setting. Did you mean `resume`?"),
        (["rl.toml"], "rl.toml: found a value with no flag before it. To read a file, write `@ rl.toml`."),
        (["-s", "3"], "-s: flags begin with two dashes"),
        (["--"], "--: flags begin with two dashes"),
        (["@"], "@: a file name must follow"),
        (["@", "--seed"], "@: a file name must follow"),
        (["--trainer", "@"], "--trainer @: a file name must follow"),
        (["--orchestrator.env.1.id", "x"], "--orchestrator.env.1.id: found element 1, expected a number up to 0"),
        (["--orchestrator.env.id", "x"], "orchestrator.env is a list, whose elements are named by number"),
        (["--orchestrator.env", "[{id=x}]"], "The shell takes quotes away"),
        (["--orchestrator.env", "3"], "--orchestrator.env: found 3, expected list of sections"),
    ],
)
def test_mistake_in_a_flag_names_the_flag(argv: list[str], message: str) -> None:
    assert message in error_of(RLConfig, argv)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("SLIMRL_TRAINER__OPTIM__LRR", "1", "The nearest is `SLIMRL_TRAINER__OPTIM__LR`"),
        ("SLIMRL_LR", "1", "The nearest is `SLIMRL_TRAINER__OPTIM__LR`"),
        ("SLIMRL_CASHE", "/x", "The nearest is `SLIMRL_CACHE`"),
        ("SLIMRL_", "1", "SLIMRL_: this environment variable sets nothing"),
        ("SLIMRL_MAX_STEPS", "many", 'max_steps (SLIMRL_MAX_STEPS): found "many", expected integer >= 1.'),
        ("SLIMRL_MAX_STEPS", "", 'max_steps (SLIMRL_MAX_STEPS): found "", expected integer >= 1.'),
        ("PRIME_MAX_STEPS", "many", 'max_steps (PRIME_MAX_STEPS): found "many", expected integer >= 1.'),
    ],
)
def test_mistake_in_a_variable_names_the_variable(name: str, text: str, message: str) -> None:
    assert message in error_of(RLConfig, ENV, **{name: text})


def test_missing_setting_is_explained() -> None:
    message = error_of(RLConfig, [])
    assert message.startswith("orchestrator.env is not set, expected list of sections, at least one.")
    assert """--orchestrator.env '[{id="reverse-text"}]'""" in message


def test_several_mistakes_are_listed_together() -> None:
    message = error_of(RLConfig, [*ENV, "--max_steps", "0", "--seed", "-1"])
    assert message.splitlines()[0] == "2 settings cannot be used:"
    assert "- --max_steps: found 0" in message
    assert "- --seed: found -1" in message


def test_variant_mistakes_name_the_variant() -> None:
    assert 'data.type is not set, expected "expert" or "file" or "hub".' in error_of(SFTConfig, [])
    assert '--data.type: found "fil", expected "expert" or "file" or "hub".' in error_of(
        SFTConfig, ["--data.type", "fil"]
    )
    both = error_of(SFTConfig, ["--data.type", "file", "--data.path", "x", "--data.env.id", "y"])
    assert both == (
        'data.env (--data.env.id): cannot act with data.type = "file" (--data.type). Remove one of the two.'
    )
    missing = error_of(SFTConfig, ["--data.type", "file"])
    assert missing.startswith("data.path is not set, expected text")


# Nine lists, each of nine aliases of the list before: 9^9 values.
ALIASES = "".join(["a0: &a0 [1]\n", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 10))]).encode()


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("c.toml", b"a = 1\nb = = 2\n", ["c.toml:2: not valid TOML"]),
        ("c.toml", b"a = 1\na = 2\n", ["c.toml:2: not valid TOML"]),
        ("c.toml", b"a = [\n", ["c.toml:2: not valid TOML"]),
        ("c.yaml", b"a: 1\n b: 2\n", ["c.yaml:2: not valid YAML"]),
        ("c.yaml", b"a: 1\nb: \x01\n", ["c.yaml: not valid YAML"]),
        ("c.yaml", b"seed: 1\nmax_steps: 2\nseed: 3\n", ["c.yaml:3: `seed` stands here again, first in line 1"]),
        ("c.yaml", b"- a\n", ['found ["a"] at the top level, expected keys and values']),
        ("c.yaml", b"seed:\n", ["seed (", "c.yaml:1): found nothing, expected integer >= 0"]),
        ("c.json", b'{"seed": 1,}', ["c.json:1: not valid JSON"]),
        ("c.json", b'{"seed": 1,\n"seed": 2}', ["c.json:2: `seed` stands here again, first in line 1"]),
        ("c.json", b'{"\x7f": 1}', ["c.json): there is no such setting"]),  # YAML refuses this character
        ("c.json", b"", ["c.json:1: not valid JSON"]),
        ("c.toml", b"seed = 1\nx = '\xff'\n", ["c.toml:2: not UTF-8 text"]),
        ("c.ini", b"a = 1\n", ["c.ini: config files end in .toml, .yaml, .yml, .json"]),
        ("c", b"a = 1\n", ["config files end in"]),
        ("c.toml", b".".join([b"a"] * 600) + b" = 1\n", ["c.toml:1", "nested too deep"]),
        ("c.yaml", b"<<: {? [a] : 1}\n", ["c.yaml:1", "a key of a merged section is a section or a list"]),
        ("c.yaml", ALIASES, ["c.yaml:", "more than 100,000 values, with those of its aliases"]),
    ],
)
def test_unreadable_file_says_why(name: str, content: bytes, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = error_of(RLConfig, [*ENV, "@", str(path)])
    for part in parts:
        assert part in message


def test_a_key_that_stands_twice_in_a_flag_is_refused() -> None:
    message = error_of(RLConfig, [*ENV, "--orchestrator.env.0.args.x", '{"a": 1, "a": 2}'])
    assert "orchestrator.env.0.args.x" in message and "`a` stands here again" in message


def test_directory_is_not_a_file(tmp_path: Path) -> None:
    assert "this is a directory, expected a config file. Name a file in it." in error_of(RLConfig, ["@", str(tmp_path)])
    (tmp_path / "config.toml").touch()
    assert f"Did you mean `@ {tmp_path}/config.toml`?" in error_of(RLConfig, ["@", str(tmp_path)])


@pytest.mark.parametrize(
    ("config_class", "path", "command"),
    [
        (RLConfig, "examples/reverse_text/eval.toml", "eval"),
        (RLConfig, "examples/wordle/sft.toml", "sft"),
        (EvalRunConfig, "examples/reverse_text/rl.toml", "rl"),
        (SFTConfig, "examples/reverse_text/rl.toml", "rl"),
        (PlayConfig, "examples/your_task/rl.toml", "rl"),
        (CheckConfig, "examples/your_task/rl.toml", "rl"),
    ],
)
def test_a_file_of_another_command_is_called_that(config_class: type[CommandConfig], path: str, command: str) -> None:
    file = Path(__file__).parents[2] / path
    with pytest.raises(UserError, match=rf"is a settings file of `slimrl {command}`.*Start `slimrl {command} @"):
        load(config_class, ["@", str(file)], {})
