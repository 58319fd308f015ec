"""Every mistake is one UserError that names the key, the place, the value and the expected value, with good hints."""

from pathlib import Path

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.check import CheckConfig
from slimrl.config.play import PlayConfig
from slimrl.config.run import EvalRunConfig, RLConfig, SFTConfig
from tests.config.reading import ENV, error_of, read, written

ROOT = Path(__file__).parents[2]
IN_FILE = {
    "max_stps = 3": ["max_stps (FILE:3)", "no such setting", "`max_steps`"],
    "lr = 3": ["lr (FILE:3)", "`trainer.optim.lr` or `warmup.optim.lr`"],
    "trainer.optim.betas = 3": ["trainer.optim.betas (FILE:3)", "Did you mean `trainer.optim.beta1`"],
    "trainr.optim.lr = 3": ["trainr (FILE:3)", "Did you mean `trainer`?"],
    "wandb.colour = 3": ["wandb.colour (FILE:3)", "Known: enabled, entity, name, project"],
    "seed.x = 3": ['seed (FILE:3): found {"x": 3}, expected integer >= 0'],
    'max_steps = "3"': ['max_steps (FILE:3): found "3", expected integer >= 1'],
    "max_steps = true": ["max_steps (FILE:3): found true, expected integer >= 1"],
    "seed = 9223372036854775808": ["seed (FILE:3): found an integer of more than 64 bits"],
    "resume = 1": ["resume (FILE:3): found 1, expected true or false"],
    "model.num_threads = 0": ['model.num_threads (FILE:3): found 0, expected "auto" or integer >= 1'],
    'model.dtype = "fp16"': ['found "fp16", expected one of "auto", "bfloat16", "float32"'],
    "trainer.optim.lr = nan": ["trainer.optim.lr (FILE:3)", "expected number > 0"],
    "eval.temperatures = []": ["eval.temperatures (FILE:3): found [], expected list of numbers >= 0, at least one"],
    'eval.temperatures = [\n  0.0,\n  "x",\n]': ['eval.temperatures.1 (FILE:3): found "x", expected number >= 0'],
    "trainer = 3": ["trainer (FILE:3): found 3, expected a section"],
    "[[eval]]\nnum_examples = 3": ["eval (FILE:3): found a list, expected a section. Write `[eval]` with one bracket."],
    '[orchestrator.env]\nid = "x"': ["orchestrator.env (FILE:3)", "Write `[[orchestrator.env]]`"],
    '[[orchestrator.env]]\nid = "x"\ncolor = 3': ["orchestrator.env.0.color (FILE:5)", "Known: args, id"],
    "[[orchestrator.env]]\nargs = 3\nid = 'x'": [
        "orchestrator.env.0.args (FILE:4): found 3, expected a dictionary"
    ],
    "[[orchestrator.env]]": ["orchestrator.env.0.id is not set, expected text"],
    "wandb.name = 2020-01-01": ["wandb.name (FILE:3): found 2020-01-01, a date, expected text"],
    "seed = -1\nmax_steps = 0": ["2 settings cannot be used:", "- seed (FILE:3): found -1", "- max_steps (FILE:4)"],
}  # fmt: skip


@pytest.mark.parametrize(("line", "parts"), IN_FILE.items())
def test_mistake_in_a_file_names_its_line(line: str, parts: list[str], tmp_path: Path) -> None:
    path = written(tmp_path / "c.toml", f"# a comment\n\n{line}\n")
    environ = {} if "orchestrator.env" in line else {"SLIMRL_ORCHESTRATOR__ENV": '[{id="x"}]'}
    message = error_of(RLConfig, "@", path, **environ)
    assert [part for part in parts if part.replace("FILE", path) not in message] == [], message


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".yaml", "# a comment\ntrainer:\n  optim:\n    lr: fast\n"),
        (".json", '{\n "trainer": {\n  "optim": {\n\t"lr":"fast"}}}'),
        (".json", '{"seed": 1,\n\n\n "trainer": {"optim": {"lr": "fast"}}}'),
    ],
)
def test_yaml_and_json_know_their_lines(suffix: str, text: str, tmp_path: Path) -> None:
    path = written(tmp_path / f"c{suffix}", text)
    assert f'trainer.optim.lr ({path}:4): found "fast", expected number > 0.' in error_of(RLConfig, *ENV, "@", path)


ON_COMMAND_LINE = {
    "--lr 3": "--lr: there is no such setting. Did you mean `trainer.optim.lr` or `warmup.optim.lr`?",
    "--trainr.optim.lr 3": "--trainr.optim.lr: there is no such setting. Did you mean `trainer.optim.lr`?",
    "--max-stps 3": "max_stps (--max-stps): there is no such setting. Did you mean `max_steps`?",
    "--max_steps": "--max_steps: no value follows, expected integer >= 1.",
    "--max_steps --seed 1": "--max_steps: no value follows",
    "--max_steps many": '--max_steps: found "many", expected integer >= 1.',
    "--resume maybe": '--resume: found "maybe", expected true or false.',
    "--eval": "--eval: this is a section. Set something in it (`--eval.interval_steps`",
    "--trainer 3": "--trainer: found 3, expected a section.",
    "rl.toml": "rl.toml: found a value with no flag before it. To read a file, write `@ rl.toml`.",
    "-s 3": "-s: flags begin with two dashes",
    "--": "--: flags begin with two dashes",
    "@": "@: a file name must follow",
    "--orchestrator.env.1.id x": "--orchestrator.env.1.id: found element 1, expected a number up to 0",
    "--orchestrator.env.id x": "orchestrator.env is a list, whose elements are named by number",
    "--orchestrator.env [{id=x}]": "The shell takes quotes away",
    "--orchestrator.env 3": "--orchestrator.env: found 3, expected list of sections",
    "--seed.x 3": "--seed.x: seed is integer >= 0 and has no settings inside it",
    "--trainer_gpu_ids -1": "trainer_gpu_ids.0 (--trainer_gpu_ids): found -1",
    "": "orchestrator.env is not set, expected list of sections, at least one. The environments to learn from, as in "
    """`--orchestrator.env '[{id="reverse-text"}]'`""",
    # Hints: near names, and names of other trainers.
    "--max_step 1": "Did you mean `max_steps`",
    "--trainer.seq_len 1": "Did you mean `seq_len`",
    "--trainer.optim.weigth_decay 1": "Did you mean `trainer.optim.weight_decay`",
    "--num_generations 1": "Did you mean `orchestrator.rollouts_per_example`",
    "--trainer.optim.learning_rate 1": "Did you mean `trainer.optim.lr`",
    "--kl 1": "Did you mean `trainer.loss.kl_beta`",
    "--max_new_tokens 1": "Did you mean `orchestrator.sampling.max_tokens`",
    "--lora_r 1": "Did you mean `model.lora.rank`",
    "--num_train_steps 1": "Did you mean `warmup.max_steps` or `max_steps`",
    # Training samples from the whole distribution.
    **{
        f"--orchestrator.sampling.{key} 0.5": f"--orchestrator.sampling.{key}: there is no such setting"
        for key in ("top_p", "top_k", "min_p")
    },
}


@pytest.mark.parametrize(("words", "message"), ON_COMMAND_LINE.items())
def test_mistake_in_a_flag_names_the_flag(words: str, message: str) -> None:
    assert message in error_of(RLConfig, *words.split())


NO_NUMBERS = [("max_steps", "16 # x"), ("trainer.optim.lr", "1e-5 # low"), ("seq_len", "64#")]


@pytest.mark.parametrize(("key", "text"), [*NO_NUMBERS, *(("trainer_gpu_ids", text) for text in ("a,b", "0;1", "0 1"))])
def test_a_number_with_something_else_is_no_number(key: str, text: str) -> None:
    assert f'--{key}: found "{text}", expected ' in error_of(RLConfig, *ENV, f"--{key}", text)


@pytest.mark.parametrize(
    ("words", "wrong"),
    {
        "--trainer.model.size 1": "teacher.model",
        "--sandbox.port 1": "wandb`?",
        "--cleanup": "seq_len`?",
        "--benchmark": "teacher`?",
        "--orchestrator.evaluate.interval 1": "env`?",
    }.items(),
)
def test_no_hint_is_better_than_a_far_one(words: str, wrong: str) -> None:
    message = error_of(RLConfig, *ENV, *words.split())
    assert "there is no such setting" in message and wrong not in message


NO_SETTING = "this environment variable sets nothing that exists."


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("SLIMRL_TRAINER__OPTIM__LRR", "1", "The nearest is `SLIMRL_TRAINER__OPTIM__LR`"),
        ("SLIMRL_LR", "1", "The nearest is `SLIMRL_TRAINER__OPTIM__LR`"),
        ("SLIMRL_CASHE", "/x", "The nearest is `SLIMRL_CACHE`"),
        ("SLIMRL_", "1", f"SLIMRL_: {NO_SETTING}"),
        ("SLIMRL_KEY__SUBKEY", "1", f"SLIMRL_KEY__SUBKEY: {NO_SETTING} Correct"),
        ("PRIME_KEY__SUBKEY", "1", f"PRIME_KEY__SUBKEY: {NO_SETTING} Correct"),
        ("PRIME_TRAINER__OPTIM__LRR", "1", f"{NO_SETTING} The nearest is `PRIME_TRAINER__OPTIM__LR`"),
        ("PRIME_MAX_STEP", "1", f"{NO_SETTING} The nearest is `PRIME_MAX_STEPS`"),
        ("SLIMRL_MAX_STEPS", "many", 'max_steps (SLIMRL_MAX_STEPS): found "many", expected integer >= 1.'),
        ("SLIMRL_MAX_STEPS", "", 'max_steps (SLIMRL_MAX_STEPS): found "", expected integer >= 1.'),
    ],
)
def test_mistake_in_a_variable_names_the_variable(name: str, text: str, message: str) -> None:
    assert message in error_of(RLConfig, *ENV, **{name: text})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", 'data.type is not set, expected "expert" or "file" or "hub".'),
        ("--data.type fil", '--data.type: found "fil", expected "expert" or "file" or "hub".'),
        ("--data 3", "--data: found 3, expected a section with type ="),
        (
            "--data.type file --data.path x --data.env.id y",
            'data.env (--data.env.id): cannot act with data.type = "file" (--data.type). Remove one of the two.',
        ),
        ("--data.type file", "data.path is not set, expected text"),
    ],
)
def test_mistake_in_a_variant_of_a_section_names_the_variant(words: str, message: str) -> None:
    assert message in error_of(SFTConfig, *words.split())


# Nine lists, each of nine aliases of the list before: 9^9 values.
ALIASES = "".join(["a0: &a0 [1]\n", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 10))]).encode()


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("c.toml", b"a = 1\nb = = 2\n", ["c.toml:2: not valid TOML"]),
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
        ("c.yaml", b"<<: {? [a] : 1}\n", ["c.yaml:1", "a key is a section or a list"]),
        ("c.yaml", ALIASES, ["c.yaml:", "more than 100,000 values, with those of its aliases"]),
    ],
)
def test_unreadable_file_says_why(name: str, content: bytes, parts: list[str], tmp_path: Path) -> None:
    message = error_of(RLConfig, *ENV, "@", written(tmp_path / name, content))
    assert [part for part in parts if part not in message] == [], message


def test_a_key_that_stands_twice_in_a_flag_is_refused() -> None:
    message = error_of(RLConfig, *ENV, "--orchestrator.env.0.args.x", '{"a": 1, "a": 2}')
    assert "orchestrator.env.0.args.x" in message and "`a` stands here again" in message


def test_a_file_that_is_not_there_is_named_with_near_names_alone(tmp_path: Path) -> None:
    def hint(name: str) -> str:
        return error_of(RLConfig, "@", f"{tmp_path}/{name}")

    for name in ("gpu.toml", "sft.toml"):
        written(tmp_path / name, "")
    assert hint("rl.toml") == f"{tmp_path}/rl.toml: no such file. Known: gpu.toml, sft.toml."
    for name in ("gppu.toml", "gpu.tml"):
        assert hint(name).startswith(f"{tmp_path}/{name}: no such file. Did you mean `gpu.toml`?")
    assert f"There is no directory {tmp_path}/nowhere" in hint("nowhere/rl.toml")
    assert "this is a directory, expected a config file. Name a file in it." in hint("")
    written(tmp_path / "config.toml", "")
    assert f"Did you mean `@ {tmp_path}/config.toml`?" in hint("")


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
    message = error_of(config_class, "@", str(ROOT / path))
    assert f"is a settings file of `slimrl {command}`" in message and f"Start `slimrl {command} @" in message


EXPERT = 'max_steps = 3\n[data]\ntype = "expert"\nenv = { id = "reverse-text", args = { style = "code" } }\n'


@pytest.mark.parametrize(
    ("more", "flags"),
    [
        ("", ["--data.type", "file", "--data.path", "F.jsonl"]),
        ('[data]\ntype = "file"\npath = "F.jsonl"\n', ["@", "mine.toml"]),
    ],
)
def test_another_type_of_a_section_drops_the_settings_of_the_old_one(
    more: str, flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "sft.toml", EXPERT)
    written(tmp_path / "mine.toml", more)
    resolved, notes = read(SFTConfig, "@", "sft.toml", *flags)
    assert resolved.config.data.model_dump()["path"] == "F.jsonl"
    origin = "mine.toml:2" if more else "--data.type"
    lost = "data.env (sft.toml:4) falls away, because it is for another data.type"
    assert notes == [f'{origin} = "file": {lost}']
    assert not any(key.startswith("data.env") for key in resolved.provenance)


def test_the_same_type_drops_nothing_and_one_source_may_not_contradict_itself(tmp_path: Path) -> None:
    assert read(SFTConfig, "@", written(tmp_path / "sft.toml", EXPERT), "--data.type", "expert")[1] == []
    text = EXPERT.replace('"expert"', '"file"').replace("env =", 'path = "x"\nenv =')
    assert "cannot act with data.type" in error_of(SFTConfig, "@", written(tmp_path / "sft.toml", text))
