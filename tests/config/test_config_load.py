"""The sources of settings, their precedence, their values, and the origin that is kept of each."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from slimrl.config.reading.formats import read_toml
from slimrl.config.reading.saved import read_flat_settings
from slimrl.config.run import EvalRunConfig, RLConfig, SFTConfig
from slimrl.config.serve import ServeConfig
from tests.config.reading import ENV, error_of, read, written


def rl(*argv: str, **environ: str) -> RLConfig:
    return read(RLConfig, *ENV, *argv, **environ)[0].config


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
    resolved, _ = read(RLConfig, *ENV, *argv, **environ)
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
    resolved, _ = read(RLConfig, "@", first, f"@{second}")
    optim = resolved.config.trainer.optim
    assert (resolved.config.max_steps, optim.lr, optim.beta1) == (7, 0.25, 0.5)
    assert [env.id for env in resolved.config.orchestrator.env] == ["c"]
    assert "orchestrator.env.1.id" not in resolved.provenance


@pytest.mark.parametrize("spelling", [["@", "F"], ["@F"]])
def test_section_file_nests_under_its_section(spelling: list[str], tmp_path: Path) -> None:
    name = written(tmp_path / "optim.toml", "[optim]\nlr = 0.5\n")
    resolved, _ = read(RLConfig, *ENV, "--trainer", *(part.replace("F", name) for part in spelling))
    assert resolved.config.trainer.optim.lr == 0.5
    assert resolved.provenance["trainer.optim.lr"] == f"{name}:2"


def test_dictionary_and_list_element_can_be_read_from_a_file(tmp_path: Path) -> None:
    env = written(tmp_path / "env.json", '{"id": "x", "args": {"n": 3}}')
    args = written(tmp_path / "args.yaml", "deep:\n  m: 4\n")
    resolved, _ = read(RLConfig, "--orchestrator.env.0", "@", env, "--orchestrator.env.0.args", "@", args)
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
    config = read(RLConfig, "@", written(tmp_path / f"c{suffix}", text))[0].config
    assert config == RLConfig.model_validate(TREE)


def test_byte_order_mark_windows_line_ends_and_empty_files_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "c.toml", "\ufeffmax_steps = 3\r\nseed = 4\r\n")
    resolved, _ = read(RLConfig, *ENV, "@", path)
    assert (resolved.config.max_steps, resolved.config.seed) == (3, 4)
    assert resolved.provenance["seed"] == f"{path}:2"
    for suffix in (".toml", ".yaml"):
        assert rl("@", written(tmp_path / f"c{suffix}", "# nothing\n")) == rl()


STYLE = "orchestrator.env.0.args"
FLAGS: list[tuple[list[str], str, Any]] = [
    (["--max-steps=3"], "max_steps", 3),
    (["--trainer.optim.max-grad-norm", "2"], "trainer.optim.max_grad_norm", 2.0),
    (["--trainer.optim.lr", "1e-4"], "trainer.optim.lr", 1e-4),
    (["--trainer.optim.lr", ".5"], "trainer.optim.lr", 0.5),
    (["--trainer.loss.type", "reinforce", "--trainer.loss.baseline", "-1"], "trainer.loss.baseline", -1.0),
    (["--resume"], "resume", True),
    (["--resume", "false"], "resume", False),
    (["--resume=yes"], "resume", True),
    (["--max_steps", "3", "--max_steps", "4"], "max_steps", 4),
    (["--wandb.name", "123"], "wandb.name", "123"),
    (["--wandb.name", "@me"], "wandb.name", "@me"),
    (["--wandb.name=--odd=name"], "wandb.name", "--odd=name"),
    (["--wandb.name", ""], "wandb.name", ""),
    (["--model.num_threads", "auto"], "model.num_threads", "auto"),
    (["--eval.temperatures", "[0.5]"], "eval.temperatures", [0.5]),
    (["--eval.temperatures.2", "0.7"], "eval.temperatures", [0.0, 1.0, 0.7]),
    (["--ckpt", '{"keep": 5}'], "ckpt.keep", 5),
    (["--orchestrator.env.0.args.max-words", "5"], STYLE, {"max_words": 5}),
    (["--orchestrator.env.0.args.day", "2020-01-01"], STYLE, {"day": "2020-01-01"}),
    (["--orchestrator.env.0.args", "{a = {b = [1]}}"], STYLE, {"a": {"b": [1]}}),
    (["--orchestrator.env.0.args.a.0", "7"], STYLE, {"a": {"0": 7}}),
    (["--orchestrator.env", '[{id="x"}, {id="y"}]', "--orchestrator.env.1.id", "z"], "orchestrator.env.1.id", "z"),
    # A project turns W&B on.
    ([], "wandb.is_on", False),
    (["--wandb.project", "p"], "wandb.is_on", True),
    (["--wandb.project", "p", "--wandb.enabled", "false"], "wandb.is_on", False),
    (["--wandb.enabled"], "wandb.is_on", True),
    (["--wandb.enabled", "auto"], "wandb.is_on", False),
    # An environment may be given by its id alone.
    *((["--orchestrator.env", text], "orchestrator.env.0.id", "a.py:A") for text in ("a.py:A", '["a.py:A"]')),
    # Lists of numbers are written in three ways.
    *(
        (["--trainer_gpu_ids", text], "trainer_gpu_ids", ids)
        for text, ids in (("0", [0]), ("2,3", [2, 3]), ("2, 3", [2, 3]), ("[2, 3]", [2, 3]), ("[]", []))
    ),
    # A value is never cut off at a number sign.
    *(
        (["--orchestrator.env.0.args.style", text], STYLE, {"style": value})
        for text, value in (
            ("12#3", "12#3"),
            ("# all of it", "# all of it"),
            ("'12#3'", "12#3"),
            ('"a # b"', "a # b"),
            ("[1, 2] # two", "[1, 2] # two"),
        )
    ),
]


@pytest.mark.parametrize(("argv", "key", "value"), FLAGS)
def test_flags_are_read(argv: list[str], key: str, value: Any) -> None:
    found: Any = rl(*argv)
    for part in key.split("."):
        found = found[int(part)] if isinstance(found, list) else getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_a_file_may_have_one_number_for_a_list_and_ids_for_environments(tmp_path: Path) -> None:
    text = 'trainer_gpu_ids = 0\neval.temperatures = 0.5\n[orchestrator]\nenv = ["reverse-text", { id = "wordle" }]\n'
    config = read(RLConfig, "@", written(tmp_path / "c.toml", text), "--orchestrator.env.1", "alphabet-sort")[0].config
    assert (config.trainer_gpu_ids, config.eval.temperatures) == ([0], [0.5])
    assert [env.id for env in config.orchestrator.env] == ["reverse-text", "alphabet-sort"]


def test_switch_before_a_file_is_not_given_its_name(tmp_path: Path) -> None:
    name = written(tmp_path / "c.toml", "max_steps = 3\n")
    for files in (["@", name], [f"@{name}"]):
        config = rl("--resume", *files)
        assert (config.resume, config.max_steps) == (True, 3)


def test_variables_are_read() -> None:
    config = rl(
        SLIMRL_RESUME="1",
        SLIMRL_EVAL__TEMPERATURES="[0.0]",
        SLIMRL_ORCHESTRATOR__ENV__0__ARGS__N="3",
        PRIME_MAX_STEPS="9",
        SLIMRL_WANDB='{project = "p"}',
    )
    assert (config.resume, config.eval.temperatures, config.max_steps) == (True, [0.0], 9)
    assert (config.orchestrator.env[0].args, config.wandb.project) == ({"n": 3}, "p")
    environ = {f"SLIMRL_ENV__{index}__ID": f"e{index}" for index in (10, 2, *range(3, 10), 1, 0)}
    evaluation = read(EvalRunConfig, **environ, SLIMRL_ENV__1__ARGS__N="3")[0].config
    assert [env.id for env in evaluation.env] == [f"e{index}" for index in range(11)]


def test_variables_of_other_commands_and_programs_are_passed_over() -> None:
    environ = {
        "SLIMRL_ORCHESTRATOR__BATCH_SIZE": "16",  # of `rl`
        "SLIMRL_CACHE": "/somewhere",
        **dict.fromkeys(("PRIME_API_KEY", "PRIME_TEAM_ID", "PRIME_LOG_LEVEL", "PRIME_CONTEXT"), "x"),
        "SLIMRLX": "x",
        "HOME": "/root",
    }
    resolved, _ = read(SFTConfig, "--data.type", "expert", "--data.env.id", "reverse-text", **environ)
    assert set(resolved.provenance) == {"data.type", "data.env.id"}
    # A secret that others call so is not the server's.
    config = read(ServeConfig, PRIME_API_KEY="of another service", PRIME_PORT="8001")[0].config
    assert (config.api_key, config.port) == ("", 8001)


def test_provenance_names_each_setting_and_no_default(tmp_path: Path) -> None:
    model = 'seed = 1\n\n[model]\nname = """\\\n  x"""\nnum_threads = 2\n'
    env = '[[env]]\nid = "a"\n[env.args]\nwords = [\n  1,\n]\n'
    rows = (
        '[[env]]\nid = "b"\n[[env.args.rows]]\nn = 1\n[[env]]\nid = "c"\n[[env.args.rows]]\nn = 2\n[[env.args.rows]]\n'
        'n = """\n[x]\n"""\n'
    )
    name = written(tmp_path / "c.toml", "# a comment\n" + model + env + rows)
    resolved, _ = read(EvalRunConfig, "@", name, "--seed", "2", SLIMRL_SAMPLING__TOP_K="5")
    found = dict(resolved.provenance)
    lines = {key: int(found.pop(key).rpartition(":")[2]) for key in [*found] if key[:5] in ("env.1", "env.2")}
    assert found == {
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
    rows_of = {key: line for key, line in lines.items() if key.endswith((".id", ".n"))}
    assert rows_of == {"env.1.id": 15, "env.1.args.rows.0.n": 17, "env.2.id": 19, "env.2.args.rows.0.n": 21,
                       "env.2.args.rows.1.n": 23}  # fmt: skip


def test_environments_have_labels_that_differ() -> None:
    envs = ["reverse-text", "reverse_text", "shout.py:Shout", "pkg.mod:Shout", "wordle"]
    names = ["", "", "", "", "team/words"]
    value = json.dumps([{"id": one, "name": name} for one, name in zip(envs, names, strict=True)])
    config = read(RLConfig, "--orchestrator.env", value)[0].config
    assert config.orchestrator.labels == ["reverse-text", "reverse-text-2", "Shout", "Shout-2", "team-words"]


OTHER_NAMES = 'max_tokens = 7\nstop = ["</a>", "</b>"]\n[[env]]\nid = "reverse-text"\n'


def test_settings_are_read_under_their_other_names(tmp_path: Path) -> None:
    resolved, notes = read(EvalRunConfig, "--env", "x", "--max_tokens", "7", "--stop.0", "</a>", "--top-p=0.5")
    sampling = resolved.config.sampling
    assert (sampling.max_tokens, sampling.stop, sampling.top_p) == (7, ["</a>"], 0.5)
    assert resolved.provenance["sampling.max_tokens"] == "--max_tokens" and notes == []
    path = written(tmp_path / "old.toml", OTHER_NAMES)
    resolved, _ = read(EvalRunConfig, "@", path)
    assert (resolved.config.sampling.max_tokens, resolved.config.sampling.stop) == (7, ["</a>", "</b>"])
    assert resolved.provenance["sampling.max_tokens"] == f"{path}:1"
    for prefix in ("SLIMRL", "PRIME"):
        assert read(EvalRunConfig, "--env", "x", **{f"{prefix}_TOP_K": "5"})[0].config.sampling.top_k == 5
    assert rl("--deployment.sampler_restarts", "7").deployment.restarts == 7
    message = error_of(EvalRunConfig, "--env", "x", "--max_tokens", "0")
    assert message.startswith("sampling.max_tokens (--max_tokens): found 0, expected integer >= 1")


@pytest.mark.parametrize(
    ("section", "name", "harmless", "other"),
    [
        ("inference", "lookup_tokens", "0", "8"),
        ("inference", "quantization", '"none"', '"int8"'),
        ("deployment", "weights", '"files"', ""),
        ("trackio", "enabled", '"auto"', "true"),
        ("tensorboard", "enabled", "false", "true"),
    ],
)
def test_a_setting_that_is_gone_is_ignored_where_it_did_nothing(
    tmp_path: Path, section: str, name: str, harmless: str, other: str
) -> None:
    """`config.toml` of a run by an earlier version has every setting."""
    env = "[[orchestrator.env]]\nid = 'reverse-text'\nmemory_gb = 0.0\n"
    path = written(tmp_path / "config.toml", f"max_steps = 3\n{env}[{section}]\n{name} = {harmless}\n")
    assert read(RLConfig, "@", path)[1] == []
    left = {"max_steps": 3, "orchestrator.env.0.id": "reverse-text"}
    assert read_flat_settings(tmp_path, "rl") == left  # which a resumed run compares with its own
    if other:  # prime-rl has `deployment`, too: any other value of it is translated, with a note
        path = written(tmp_path / "config.toml", f"max_steps = 3\n[{section}]\n{name} = {other}\n")
        assert section in error_of(RLConfig, *ENV, "@", path)


def test_flags_override_a_file_under_either_name_and_a_file_has_a_setting_once(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old.toml", OTHER_NAMES), written(tmp_path / "new.toml", "[sampling]\nmax_tokens=8\n")
    assert read(EvalRunConfig, "@", old, "--sampling.max_tokens", "9")[0].config.sampling.max_tokens == 9
    assert read(EvalRunConfig, "@", new, "--env", "x", "--max_tokens", "9")[0].config.sampling.max_tokens == 9
    mixed = read(EvalRunConfig, "@", written(tmp_path / "c.toml", f"{OTHER_NAMES}[sampling]\ntop_k = 8\n"))[0].config
    assert (mixed.sampling.max_tokens, mixed.sampling.top_k) == (7, 8)
    both = written(tmp_path / "both.toml", f"{OTHER_NAMES}[sampling]\nmax_tokens = 8\n")
    message = error_of(EvalRunConfig, "@", both)
    assert message.startswith(f"sampling.max_tokens ({both}:6): is set in {both}:1, too, maybe under another name.")


def test_long_lists_with_brackets_in_their_texts_have_lines_in_linear_time() -> None:
    for text in ("[", "]"):
        document = "x = [\n" + f'  "{text}",\n' * 3_000 + "]\ny = 1\n"
        began = time.thread_time()
        _, lines = read_toml(document)
        assert lines[("x",)] == 1 and lines[("y",)] == 3_003
        assert time.thread_time() - began < 2  # 0.05; seconds where it is quadratic
