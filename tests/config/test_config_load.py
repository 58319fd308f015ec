"""Where settings come from, which one wins, and what is remembered about it."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from slimrl.config.data import ExpertDataConfig, FileDataConfig
from slimrl.config.reading.flags import names_section
from slimrl.config.reading.load import load
from slimrl.config.run import EvalRunConfig, RLConfig, SFTConfig
from slimrl.config.serve import ServeConfig

ENV = ["--orchestrator.env.0.id", "reverse-text"]


def rl(argv: list[str], **environ: str) -> RLConfig:
    return load(RLConfig, [*ENV, *argv], environ).config


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


SOURCES = ["PRIME_", "SLIMRL_", "first file", "second file", "flag"]  # lowest first


@pytest.mark.parametrize("present", [set(s) for n in range(6) for s in itertools.combinations(range(5), n)], ids=str)
def test_highest_source_present_wins(present: set[int], tmp_path: Path) -> None:
    argv: list[str] = []
    environ: dict[str, str] = {}
    if 4 in present:
        argv += ["--trainer.optim.lr", "0.4"]  # before the files: where a flag stands does not matter
    for index in (2, 3):
        if index in present:
            argv += ["@", written(tmp_path / f"{index}.toml", f"[trainer.optim]\nlr = 0.{index}\n")]
    for index in (0, 1):
        if index in present:
            environ[f"{SOURCES[index]}TRAINER__OPTIM__LR"] = f"0.{index}1"
    resolved = load(RLConfig, [*ENV, *argv], environ)
    values = {0: 0.01, 1: 0.11, 2: 0.2, 3: 0.3, 4: 0.4}
    origins = {
        0: "PRIME_TRAINER__OPTIM__LR",
        1: "SLIMRL_TRAINER__OPTIM__LR",
        2: f"{tmp_path}/2.toml:2",
        3: f"{tmp_path}/3.toml:2",
        4: "--trainer.optim.lr",
    }
    assert resolved.config.trainer.optim.lr == (values[max(present)] if present else 1e-5)
    assert resolved.provenance.get("trainer.optim.lr") == (origins[max(present)] if present else None)


def test_files_merge_key_by_key_and_lists_are_replaced(tmp_path: Path) -> None:
    first = written(
        tmp_path / "a.toml",
        "max_steps = 7\n[trainer.optim]\nlr = 0.5\nbeta1 = 0.5\n"
        '[[orchestrator.env]]\nid = "a"\n[[orchestrator.env]]\nid = "b"\n',
    )
    second = written(tmp_path / "b.toml", '[trainer.optim]\nlr = 0.25\n[[orchestrator.env]]\nid = "c"\n')
    resolved = load(RLConfig, ["@", first, f"@{second}"], {})
    optim = resolved.config.trainer.optim
    assert (resolved.config.max_steps, optim.lr, optim.beta1) == (7, 0.25, 0.5)
    assert [env.id for env in resolved.config.orchestrator.env] == ["c"]
    assert "orchestrator.env.1.id" not in resolved.provenance


@pytest.mark.parametrize("spelling", [["@", "F"], ["@F"]])
def test_section_file_nests_under_its_section(spelling: list[str], tmp_path: Path) -> None:
    name = written(tmp_path / "optim.toml", "[optim]\nlr = 0.5\n")
    resolved = load(RLConfig, [*ENV, "--trainer", *(part.replace("F", name) for part in spelling)], {})
    assert resolved.config.trainer.optim.lr == 0.5
    assert resolved.provenance["trainer.optim.lr"] == f"{name}:2"


def test_dictionary_and_list_element_can_be_read_from_a_file(tmp_path: Path) -> None:
    env = written(tmp_path / "env.json", '{"id": "x", "args": {"n": 3}}')
    args = written(tmp_path / "args.yaml", "deep:\n  m: 4\n")
    resolved = load(RLConfig, ["--orchestrator.env.0", "@", env, "--orchestrator.env.0.args", "@", args], {})
    assert resolved.config.orchestrator.env[0].args == {"n": 3, "deep": {"m": 4}}


TREE = {
    "max_steps": 3,
    "resume": True,
    "trainer": {"optim": {"lr": 1e-5, "max_grad_norm": 2}},
    "orchestrator": {"env": [{"id": "a", "args": {"words": ["x", "y"], "n": 1}}, {"id": "b"}]},
    "eval": {"temperatures": [0.0, 0.5]},
}
AS_TOML = """
max_steps = 3
resume = true
eval.temperatures = [0.0, 0.5]
trainer = { optim = { lr = 1e-5, max_grad_norm = 2 } }
[[orchestrator.env]]
id = "a"
args = { words = ["x", "y"], n = 1 }
[[orchestrator.env]]
id = "b"
"""
AS_YAML = """
max_steps: 3
resume: true
trainer: {optim: {lr: 1e-5, max_grad_norm: 2}}
orchestrator:
  env:
  - id: a
    args: {words: [x, y], n: 1}
  - id: b
eval:
  temperatures: [0.0, 5e-1]
"""


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".toml", AS_TOML),
        (".yaml", AS_YAML),
        (".yml", AS_YAML),
        (".json", json.dumps(TREE)),
        (".json", json.dumps(TREE, indent="\t")),
    ],
)
def test_formats_say_the_same(suffix: str, text: str, tmp_path: Path) -> None:
    config = load(RLConfig, ["@", written(tmp_path / f"c{suffix}", text)], {}).config
    assert config == RLConfig.model_validate(TREE)


def test_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes("\ufeffmax_steps = 3\r\nseed = 4\r\n".encode())
    resolved = load(RLConfig, [*ENV, "@", str(path)], {})
    assert (resolved.config.max_steps, resolved.config.seed) == (3, 4)
    assert resolved.provenance["seed"] == f"{path}:2"


def test_empty_file_sets_nothing(tmp_path: Path) -> None:
    for suffix in (".toml", ".yaml"):
        assert rl(["@", written(tmp_path / f"c{suffix}", "# nothing\n")]) == rl([])


@pytest.mark.parametrize(
    ("argv", "key", "value"),
    [
        (["--max_steps", "3"], "max_steps", 3),
        (["--max-steps", "3"], "max_steps", 3),
        (["--max-steps=3"], "max_steps", 3),
        (["--trainer.optim.max-grad-norm", "2"], "trainer.optim.max_grad_norm", 2.0),
        (["--trainer.optim.lr", "1e-4"], "trainer.optim.lr", 1e-4),
        (["--trainer.optim.lr", ".5"], "trainer.optim.lr", 0.5),
        (["--trainer.loss.type", "reinforce", "--trainer.loss.baseline", "-1"], "trainer.loss.baseline", -1.0),
        (["--resume"], "resume", True),
        (["--resume", "--max_steps", "3"], "resume", True),
        (["--resume", "false"], "resume", False),
        (["--resume=yes"], "resume", True),
        (["--wandb.enabled", "--no-wandb.enabled"], "wandb.enabled", False),
        (["--max_steps", "3", "--max_steps", "4"], "max_steps", 4),
        (["--wandb.name", "123"], "wandb.name", "123"),
        (["--wandb.name", "@me"], "wandb.name", "@me"),
        (["--wandb.name=--odd=name"], "wandb.name", "--odd=name"),
        (["--wandb.name", ""], "wandb.name", ""),
        (["--model.num_threads", "2"], "model.num_threads", 2),
        (["--model.num_threads", "auto"], "model.num_threads", "auto"),
        (["--eval.temperatures", "[0.5]"], "eval.temperatures", [0.5]),
        (["--eval.temperatures.1", "0.7"], "eval.temperatures", [0.0, 0.7]),
        (["--eval.temperatures.2", "0.7"], "eval.temperatures", [0.0, 1.0, 0.7]),
        (["--ckpt", "{keep = 5}"], "ckpt.keep", 5),
        (["--ckpt", '{"keep": 5}'], "ckpt.keep", 5),
        (["--orchestrator.env.0.args.max-words", "5"], "orchestrator.env.0.args", {"max_words": 5}),
        (["--orchestrator.env.0.args.word", "five"], "orchestrator.env.0.args", {"word": "five"}),
        (["--orchestrator.env.0.args.day", "2020-01-01"], "orchestrator.env.0.args", {"day": "2020-01-01"}),
        (["--orchestrator.env.0.args", "{a = {b = [1]}}"], "orchestrator.env.0.args", {"a": {"b": [1]}}),
        (["--orchestrator.env.0.args.a.0", "7"], "orchestrator.env.0.args", {"a": {"0": 7}}),
        (["--orchestrator.env", '[{id="x"}, {id="y"}]', "--orchestrator.env.1.id", "z"], "orchestrator.env.1.id", "z"),
        (["--orchestrator.env", '[{"id": "x"}]'], "orchestrator.env.0.id", "x"),
    ],
)
def test_flags_are_read(argv: list[str], key: str, value: Any) -> None:
    found: Any = rl(argv)
    for part in key.split("."):
        found = found[int(part)] if isinstance(found, list) else getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_switch_before_a_file_is_not_given_its_name(tmp_path: Path) -> None:
    name = written(tmp_path / "c.toml", "max_steps = 3\n")
    for files in (["@", name], [f"@{name}"]):
        config = rl(["--resume", *files])
        assert (config.resume, config.max_steps) == (True, 3)


def test_variables_are_read() -> None:
    config = rl(
        [],
        SLIMRL_RESUME="1",
        SLIMRL_EVAL__TEMPERATURES="[0.0]",
        SLIMRL_ORCHESTRATOR__ENV__0__ARGS__N="3",
        PRIME_MAX_STEPS="9",
        SLIMRL_WANDB='{project = "p"}',
    )
    assert (config.resume, config.eval.temperatures, config.max_steps) == (True, [0.0], 9)
    assert (config.orchestrator.env[0].args, config.wandb.project) == ({"n": 3}, "p")


def test_variables_fill_a_list_in_the_order_of_its_elements() -> None:
    environ = {f"SLIMRL_ENV__{index}__ID": f"e{index}" for index in (10, 2, *range(3, 10), 1, 0)}
    config = load(EvalRunConfig, [], environ | {"SLIMRL_ENV__1__ARGS__N": "3"}).config
    assert [env.id for env in config.env] == [f"e{index}" for index in range(11)]


def test_a_secret_that_others_call_so_is_not_the_servers() -> None:
    environ = {"PRIME_API_KEY": "of another service", "PRIME_PORT": "8001"}
    config = load(ServeConfig, [], environ).config
    assert (config.api_key, config.port) == ("", 8001)


def test_variables_that_are_not_for_this_command_are_passed_over() -> None:
    environ = {
        "SLIMRL_ORCHESTRATOR__BATCH_SIZE": "16",  # of `rl`
        "SLIMRL_CACHE": "/somewhere",
        "PRIME_API_KEY": "x",
        "SLIMRLX": "x",
        "HOME": "/root",
    }
    resolved = load(SFTConfig, ["--data.type", "expert", "--data.env.id", "reverse-text"], environ)
    assert set(resolved.provenance) == {"data.type", "data.env.id"}


def test_variants_are_chosen_by_type() -> None:
    file = load(SFTConfig, ["--data.type", "file", "--data.path", "x.jsonl"], {}).config.data
    expert = load(SFTConfig, ["--data", '{type="expert", env={id="x"}}'], {}).config.data
    assert isinstance(file, FileDataConfig)
    assert isinstance(expert, ExpertDataConfig)


def test_provenance_names_what_was_set_and_nothing_else(tmp_path: Path) -> None:
    model = 'seed = 1\n\n[model]\nname = """\\\n  x"""\nnum_threads = 2\n'
    env = '[[env]]\nid = "a"\n[env.args]\nwords = [\n  1,\n]\n'
    name = written(tmp_path / "c.toml", "# a comment\n" + model + env)
    resolved = load(EvalRunConfig, ["@", name, "--seed", "2"], {"SLIMRL_SAMPLING__TOP_K": "5"})
    assert dict(resolved.provenance) == {
        "sampling.top_k": "SLIMRL_SAMPLING__TOP_K",
        "seed": "--seed",
        "model.name": f"{name}:5",
        "model.num_threads": f"{name}:7",
        "env": f"{name}:8",
        "env.0": f"{name}:8",
        "env.0.id": f"{name}:9",
        "env.0.args": f"{name}:10",
        "env.0.args.words": f"{name}:11",
        "env.0.args.words.0": f"{name}:11",
    }


def test_loaded_configuration_is_frozen() -> None:
    config = rl([])
    with pytest.raises(ValueError, match="frozen"):
        config.max_steps = 3  # type: ignore[misc]from slimrl.config.serve import ServeConfig


def test_environments_have_labels_that_differ() -> None:
    envs = ["reverse-text", "reverse_text", "shout.py:Shout", "pkg.mod:Shout", "wordle"]
    names = ["", "", "", "", "team/words"]
    value = json.dumps([{"id": one, "name": name} for one, name in zip(envs, names, strict=True)])
    config = load(RLConfig, ["--orchestrator.env", value], {}).config
    assert config.orchestrator.labels == ["reverse-text", "reverse-text-2", "Shout", "Shout-2", "team-words"]


@pytest.mark.parametrize(
    ("words", "sets_it"),
    [([], False), (["--max_steps", "3"], False), (["--orchestrator.seed", "3"], True), (["@"], False)],
)
def test_a_command_line_is_looked_through_for_a_section(words: list[str], sets_it: bool) -> None:
    assert names_section(words, "orchestrator") is sets_it
