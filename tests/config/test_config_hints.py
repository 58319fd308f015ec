"""What is given in a way that looks like something else, and hints that lead somewhere."""

from pathlib import Path

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.errors import UserError

ENV = ["--orchestrator.env.0.id", "reverse-text"]


def error_of(config_class: type[CommandConfig], argv: list[str], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load(config_class, argv, environ or {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12#3", "12#3"),
        ("# all of it", "# all of it"),
        ("'12#3'", "12#3"),
        ('"a # b"', "a # b"),
        ("[1, 2] # two", "[1, 2] # two"),
        ("12", 12),
        ("[1, 2]", [1, 2]),
    ],
)
def test_a_value_is_never_cut_off_at_a_number_sign(text: str, value: object):
    config = load(RLConfig, [*ENV, "--orchestrator.env.0.args.style", text], {}).config
    assert config.orchestrator.env[0].args == {"style": value}


@pytest.mark.parametrize(
    ("text", "ids"), [("0", [0]), ("2,3", [2, 3]), ("2, 3", [2, 3]), ("[2, 3]", [2, 3]), ("[]", [])]
)
def test_lists_of_numbers_are_written_in_three_ways(text: str, ids: list[int]):
    assert load(RLConfig, [*ENV, "--trainer_gpu_ids", text], {}).config.trainer_gpu_ids == ids


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("max_steps", "16 # x"),
        ("trainer.optim.lr", "1e-5 # low"),
        ("seq_len", "64#"),
        *(("trainer_gpu_ids", text) for text in ("a,b", "0;1", "0 1")),
    ],
)
def test_a_number_with_something_else_is_no_number(key: str, text: str):
    assert f'--{key}: found "{text}", expected ' in error_of(RLConfig, [*ENV, f"--{key}", text])


def test_one_number_in_a_file_is_a_list_of_one(tmp_path: Path):
    (tmp_path / "c.toml").write_text("trainer_gpu_ids = 0\neval.temperatures = 0.5\n")
    config = load(RLConfig, ["@", f"{tmp_path}/c.toml", *ENV], {}).config
    assert (config.trainer_gpu_ids, config.eval.temperatures) == ([0], [0.5])


@pytest.mark.parametrize("text", ["-1", "1.5"])
def test_a_gpu_is_no_such_number(text: str):
    assert f"trainer_gpu_ids.0 (--trainer_gpu_ids): found {text}" in error_of(
        RLConfig, [*ENV, "--trainer_gpu_ids", text]
    )


EXPERT = 'max_steps = 3\n[data]\ntype = "expert"\nenv = { id = "reverse-text", args = { style = "code" } }\n'


def test_another_type_of_a_section_drops_what_belongs_to_the_old_one(tmp_path: Path):
    (tmp_path / "sft.toml").write_text(EXPERT)
    notes: list[str] = []
    argv = ["@", f"{tmp_path}/sft.toml", "--data.type", "file", "--data.path", "F.jsonl"]
    resolved = load(SFTConfig, argv, {}, notes.append)
    assert resolved.config.data.model_dump()["path"] == "F.jsonl"
    assert notes == [
        f'--data.type = "file": data.env ({tmp_path}/sft.toml:4) falls away, because it is for another data.type'
    ]
    assert not any(key.startswith("data.env") for key in resolved.provenance)


def test_a_second_file_changes_the_type_too(tmp_path: Path):
    (tmp_path / "sft.toml").write_text(EXPERT)
    (tmp_path / "mine.toml").write_text('[data]\ntype = "hub"\nname = "a/b"\n')
    notes: list[str] = []
    config = load(SFTConfig, ["@", f"{tmp_path}/sft.toml", "@", f"{tmp_path}/mine.toml"], {}, notes.append).config
    assert config.data.model_dump()["name"] == "a/b" and "data.env" in notes[0]


def test_one_source_that_contradicts_itself_is_refused(tmp_path: Path):
    (tmp_path / "sft.toml").write_text(EXPERT.replace('"expert"', '"file"').replace("env =", 'path = "x"\nenv ='))
    assert "cannot act with data.type" in error_of(SFTConfig, ["@", f"{tmp_path}/sft.toml"])


def test_the_same_type_again_drops_nothing(tmp_path: Path):
    (tmp_path / "sft.toml").write_text(EXPERT)
    notes: list[str] = []
    load(SFTConfig, ["@", f"{tmp_path}/sft.toml", "--data.type", "expert"], {}, notes.append)
    assert notes == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("PRIME_KEY__SUBKEY", ""),
        ("PRIME_TRAINER__OPTIM__LRR", "`PRIME_TRAINER__OPTIM__LR`"),
        ("PRIME_MAX_STEP", "`PRIME_MAX_STEPS`"),
        ("SLIMRL_KEY__SUBKEY", ""),
        ("SLIMRL_MODEL__NAMES", "`SLIMRL_MODEL__NAME`"),
    ],
)
def test_a_misspelt_variable_is_refused(name: str, hint: str):
    message = error_of(RLConfig, ENV, {name: "1"})
    assert message.startswith(f"{name}: this environment variable sets nothing that exists.")
    assert hint in message if hint else "nearest" not in message


@pytest.mark.parametrize("name", ["PRIME_API_KEY", "PRIME_TEAM_ID", "PRIME_LOG_LEVEL", "PRIME_CONTEXT"])
def test_variables_of_other_programs_are_left_alone(name: str):
    load(RLConfig, ENV, {name: "x"})


FAR = {
    "--trainer.model.size 1": "teacher.model",
    "--sandbox.port 1": "wandb`?",
    "--cleanup": "seq_len`?",
    "--benchmark": "teacher`?",
    "--orchestrator.evaluate.interval 1": "env`?",
}
NEAR = {
    "max_step": "max_steps",
    "trainer.seq_len": "seq_len",
    "optim.lr": "trainer.optim.lr",
    "trianer.optim.lr": "trainer.optim.lr",
    "trainer.optim.weigth_decay": "trainer.optim.weight_decay",
    # names of other trainers
    "num_generations": "orchestrator.rollouts_per_example",
    "trainer.optim.learning_rate": "trainer.optim.lr",
    "kl": "trainer.loss.kl_beta",
    "max_new_tokens": "orchestrator.sampling.max_tokens",
    "lora_r": "model.lora.rank",
    "num_train_steps": "max_steps",
}


@pytest.mark.parametrize(("words", "wrong"), FAR.items())
def test_no_hint_is_better_than_a_far_one(words: str, wrong: str):
    message = error_of(RLConfig, [*ENV, *words.split()])
    assert "there is no such setting" in message and wrong not in message


@pytest.mark.parametrize(("key", "setting"), NEAR.items())
def test_a_near_name_is_suggested(key: str, setting: str):
    assert f"Did you mean `{setting}`" in error_of(RLConfig, [*ENV, f"--{key}", "1"])


def test_a_missing_file_suggests_near_names_alone(tmp_path: Path):
    def hint(name: str) -> str:
        return error_of(RLConfig, ["@", f"{tmp_path}/{name}"])

    for name in ("gpu.toml", "sft.toml", "pyproject.toml"):
        (tmp_path / name).touch()
    assert "Did you mean" not in hint("rl.toml")
    assert f"Known: {tmp_path}/gpu.toml, {tmp_path}/sft.toml." in hint("rl.toml")
    for name in ("gppu.toml", "gpu.tml"):
        assert hint(name).startswith(f"{tmp_path}/{name}: no such file. Did you mean `{tmp_path}/gpu.toml`?")
    for name in ("gpu.toml", "sft.toml"):
        (tmp_path / name).unlink()
    assert "There is no settings file in" in hint("rl.toml")
    assert f"There is no directory {tmp_path}/nowhere" in hint("nowhere/rl.toml")


@pytest.mark.parametrize(
    ("words", "is_on"),
    [
        ("", False),
        ("--wandb.project p", True),
        ("--wandb.project p --no-wandb.enabled", False),
        ("--wandb.enabled", True),
        ("--wandb.enabled true", True),
        ("--wandb.enabled auto", False),
    ],
)
def test_a_project_turns_weights_and_biases_on(words: str, is_on: bool):
    assert load(RLConfig, [*ENV, *words.split()], {}).config.wandb.is_on == is_on


@pytest.mark.parametrize("value", ["shout.py:Shout", '["shout.py:Shout"]', '[{id = "shout.py:Shout"}]'])
def test_an_environment_may_be_given_by_its_id_alone(value: str):
    config = load(RLConfig, ["--orchestrator.env", value], {}).config
    assert [env.id for env in config.orchestrator.env] == ["shout.py:Shout"]


def test_one_of_several_environments_may_be_given_by_its_id(tmp_path: Path):
    (tmp_path / "c.toml").write_text('[orchestrator]\nenv = ["reverse-text", { id = "wordle" }]\n')
    config = load(RLConfig, ["@", f"{tmp_path}/c.toml", "--orchestrator.env.1", "alphabet-sort"], {}).config
    assert [env.id for env in config.orchestrator.env] == ["reverse-text", "alphabet-sort"]
