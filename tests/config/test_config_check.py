"""Rules across sections: what contradicts is refused, with every key that takes part and where it was set."""

import re

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.loss import PRESETS, LossConfig
from slimrl.config.reading.load import load
from slimrl.config.run import EvalRunConfig, ProbeConfig, RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.errors import UserError

ENV = ["--orchestrator.env.0.id", "reverse-text"]
REINFORCE = ["--trainer.loss.type", "reinforce"]
ALONE = [*REINFORCE, "--orchestrator.rollouts_per_example", "1"]
VALUE = ["--trainer.loss.advantage", "gae"]
PURE = ["--teacher.type", "model", "--trainer.loss.adv_tau", "0"]
SERVER = ["--teacher.type", "server", "--teacher.base_url", "http://localhost:8000/v1", "--teacher.model", "m"]
FILE = ["--data.type", "file", "--data.path", "x.jsonl"]


@pytest.mark.parametrize(
    ("config_class", "argv", "message"),
    [
        (RLConfig, ["--orchestrator.batch_size", "20"], "Set batch_size to 16 or 24."),
        (RLConfig, ["--orchestrator.batch_size", "3"], "Set batch_size to 8."),
        (RLConfig, ["--orchestrator.sampling.max_tokens", "1024"], "leaves no room for a prompt in seq_len = 1024"),
        (RLConfig, ["--model.device", "gpu"], 'model.device = "gpu" is no device'),
        (RLConfig, ["--model.device", "mps"], "expected auto, cpu, cuda or cuda:NUMBER"),
        (RLConfig, ["--eval.temperatures", "[1.0, 1.0]"], "names a temperature twice"),
        (RLConfig, ["--trainer.schedule.min_lr_ratio", "0.1"], "trainer.schedule.min_lr_ratio = 0.1 cannot act"),
        (RLConfig, ["--warmup.schedule.min_lr_ratio", "0.1"], "warmup.schedule.min_lr_ratio = 0.1 cannot act"),
        (RLConfig, ["--orchestrator.rollouts_per_example", "1"], "a group of 1 has nothing to be compared with"),
        (RLConfig, ["--trainer.loss.eps_low", "0.2"], 'trainer.loss.policy is here "aipo"'),
        (RLConfig, ["--trainer.loss.type", "grpo", "--trainer.loss.delta", "4"], "is for the policy aipo"),
        (RLConfig, ["--trainer.loss.baseline", "0"], "is for the advantage reinforce, and"),
        (RLConfig, ["--trainer.loss.gamma", "0.9"], "is for the advantage gae, or the credit turn or state, and"),
        (RLConfig, ["--trainer.loss.policy_args.delta", "4"], "arguments of a function of your own"),
        (RLConfig, ["--trainer.loss.advantage_args.b", "1"], "arguments of a function of your own"),
        (RLConfig, ["--trainer.loss.policy", "my.py:loss", "--trainer.loss.delta", "4"], "is for the policy aipo"),
        (RLConfig, ["--trainer.loss.advantage", "gae", "--trainer.loss.credit", "turn"], "a value head credits"),
        (RLConfig, ["--trainer.loss.advantage", "rae", "--trainer.loss.credit", "turn"], "the running mean is of"),
        (
            RLConfig,
            ["--trainer.loss.type", "dapo", "--trainer.loss.policy", "aipo", "--trainer.loss.eps_high", "0.3"],
            "trainer.loss.policy: --trainer.loss.policy",
        ),
        (RLConfig, ["--monitors.stop", '["judge"]', "--monitors.off", '["judge"]'], "monitors.off has it too"),
        (RLConfig, ["--monitors.off", '["judge", "judge"]'], 'monitors.off names "judge" twice'),
        (RLConfig, ["--monitors.stop", '["held_out_gap"]'], "Set eval.interval_steps"),
        (RLConfig, ["--monitors.stop", '["duplicates"]', *ALONE], "leaves no two rollouts to compare"),
        (RLConfig, ["--monitors.stop", '["zero_signal"]', *VALUE], "every group carries a signal"),
        (RLConfig, ["--monitors.off", '["length"]', "--monitors.max_length_factor", "3"], 'its monitor "length" is in'),
        (RLConfig, ["--trainer.loss.adv_tau", "0"], "adv_tau = 0.0 leaves nothing to learn from"),
        (RLConfig, ["--trainer.loss.adv_tau", "0.5", "--trainer.loss.advantage", "gae"], "adv_tau does not go with"),
        (RLConfig, ["--trainer.loss.teacher_tau", "0.5"], "teacher_tau cannot act without a teacher"),
        (RLConfig, ["--trainer.loss.student_tau", "0.1", "--trainer.loss.advantage", "gae"], "student_tau does not go"),
        (RLConfig, ["--teacher.type", "policy"], "the same weights read the same"),
        (RLConfig, ["--teacher.type", "model", "--teacher.seq_len", "1023"], "cannot hold rollouts of seq_len = 1024"),
        (RLConfig, [*SERVER, "--teacher.seq_len", "1024"], "Set it to 1025 and what the teacher's context adds"),
        (
            RLConfig,
            [*SERVER, "--teacher.base_url", "localhost:8000"],
            'base_url = "localhost:8000": expected an address as http://localhost:8000/v1',
        ),
        (RLConfig, ["--teacher.type", "model", "--trainer.loss.advantage", "gae"], "teacher.type does not go with"),
        (RLConfig, ["--teacher.type", "model", "--trainer.loss.teacher_tau", "0"], "asks the teacher in vain"),
        (RLConfig, ["--teacher.type", "model", "--teacher.device", "gpu"], 'teacher.device = "gpu" is no device'),
        (RLConfig, ["--teacher_gpu_ids", "[0]"], 'cannot act with teacher.type = "none"'),
        (
            RLConfig,
            ["--teacher.type", "model", "--teacher.device", "cpu", "--teacher_gpu_ids", "[0]"],
            "say the same thing twice",
        ),
        (RLConfig, [*SERVER, "--orchestrator.sampling.temperature", "0.7"], "at temperature 1 alone"),
        (
            RLConfig,
            ["--inference.base_url", "localhost:8000"],
            'base_url = "localhost:8000": expected an address as http',
        ),
        (
            RLConfig,
            ["--inference.base_url", "http://localhost:8000/v1"],
            'base_url = "http://localhost:8000/v1": expected an address as http://localhost:8000, without a path',
        ),
        (RLConfig, ["--inference.vllm_program", "my-vllm"], 'nothing but inference.backend "vllm" starts vLLM'),
        (RLConfig, ["--inference.backend", "vllm", "--inference.quantization", "int8"], "only the engine of slimrl"),
        (RLConfig, ["--inference.backend", "vllm", "--inference.api_key_variable", "KEY"], "has no key"),
        (
            RLConfig,
            ["--inference.base_url", "http://localhost:8000", "--inference.lookup_tokens", "4"],
            "it is set where that server is started",
        ),
        (ProbeConfig, [], "nothing to probe"),
        (ProbeConfig, ["--teacher.type", "model", "--warmup.max_steps", "3"], "the probe trains nothing"),
        (ProbeConfig, ["--teacher.type", "model", "--resume"], "nothing to continue"),
        (TrainerOnlyConfig, ["--trainer.loss.teacher_tau", "1"], "cannot act without a teacher"),
        (TrainerOnlyConfig, ["--trainer.loss.student_tau", "1"], "made-up samples have made-up advantages"),
        (TrainerOnlyConfig, ["--trainer.loss.credit", "turn"], "credit cannot act: made-up samples"),
        (TrainerOnlyConfig, ["--trainer.loss.advantage", "rloo"], "advantage cannot act: made-up samples"),
        (TrainerOnlyConfig, [*REINFORCE, "--trainer.loss.baseline", "0"], "baseline cannot act: made-up samples"),
        (RLConfig, [*PURE, "--trainer.loss.credit", "turn"], "credit cannot act: with trainer.loss.adv_tau = 0"),
        (
            RLConfig,
            [*PURE, *REINFORCE, "--trainer.loss.baseline", "0"],
            "baseline cannot act: with trainer.loss.adv_tau",
        ),
        (TrainerOnlyConfig, ["--seq_len", "31"], "data.prompt_len + data.completion_len = 32 tokens do not fit"),
        (TrainerOnlyConfig, ["--data.batch_size", "6"], "Set batch_size to 4 or 8."),
        (
            SFTConfig,
            [*FILE, "--data.val_path", "v", "--data.val_fraction", "0.1"],
            "data.val_fraction = 0.1 cannot act",
        ),
        (SFTConfig, [*FILE, "--schedule.min_lr_ratio", "0.1"], "schedule.min_lr_ratio = 0.1 cannot act"),
        (EvalRunConfig, ["--env.0.id", "x", "--sampling.max_tokens", "2000"], "leaves no room for a prompt"),
        (EvalRunConfig, ["--env.0.id", "x", "--inference.backend", "vllm"], "`eval` samples in its own process"),
        (
            EvalRunConfig,
            ["--env.0.id", "x", "--temperatures", "[0.0]", "--sampling.top_k", "5"],
            "top_k = 5 cannot act",
        ),
    ],
)
def test_contradiction_is_refused(config_class: type[CommandConfig], argv: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        load(config_class, [*(ENV if issubclass(config_class, RLConfig) else []), *argv], {})
    assert message in str(caught.value)


def test_a_key_in_place_of_its_variable_is_refused_and_not_shown() -> None:
    with pytest.raises(UserError, match=r"teacher\.api_key_variable has what is no name of a variable") as caught:
        load(RLConfig, [*ENV, *SERVER, "--teacher.api_key_variable", "sk-secret"], {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://me:secret@localhost:8000/v1", "http://me:secret@localhost:many"])
def test_a_password_in_an_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UserError, match=r"teacher\.base_url has a user or a password in it") as caught:
        load(RLConfig, [*ENV, *SERVER, "--teacher.base_url", url], {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ('{ base_url = "http://me:secret@localhost/v1" }', "env.0.args.llm.base_url"),
        ('[{ base_url = "http://localhost/v1" }, { base_url = "me:secret@localhost" }]', "env.0.args.llm.1.base_url"),
    ],
)
def test_nor_is_a_password_passed_on_to_an_environment(given: str, place: str) -> None:
    with pytest.raises(UserError, match=rf"{re.escape(place)} has a user or a password in it") as caught:
        load(EvalRunConfig, ["--env.0.id", "x", "--env.0.args.llm", given], {})
    assert "secret" not in str(caught.value) and str(caught.value).endswith(f"({place}: --env.0.args.llm)")


def test_contradiction_says_where_each_side_was_set() -> None:
    with pytest.raises(UserError) as caught:
        load(RLConfig, [*ENV, "--orchestrator.batch-size", "20"], {"SLIMRL_ORCHESTRATOR__ROLLOUTS_PER_EXAMPLE": "6"})
    assert str(caught.value).endswith(
        "(orchestrator.batch_size: --orchestrator.batch-size; "
        "orchestrator.rollouts_per_example: SLIMRL_ORCHESTRATOR__ROLLOUTS_PER_EXAMPLE)"
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["--model.device", "cuda:1"],
        ["--wandb.project", "p"],
        ["--warmup.batch_size", "8"],
        [
            "--orchestrator.batch_size",
            "5",
            "--orchestrator.rollouts_per_example",
            "1",
            "--trainer.loss.type",
            "reinforce",
        ],
        ["--trainer.schedule.type", "cosine", "--trainer.schedule.min_lr_ratio", "0.1"],
        ["--trainer.loss.policy", "clip", "--trainer.loss.eps_high", "0.3"],
        ["--trainer.loss.advantage", "reinforce", "--trainer.loss.baseline", "0"],
        ["--trainer.loss.student_tau", "0.01"],
        SERVER,
        ["--teacher.type", "policy", "--teacher.env_args", "{style = 'word'}"],
        ["--teacher.type", "model", "--trainer.loss.adv_tau", "0", "--orchestrator.rollouts_per_example", "1"],
        ["--teacher.type", "model", "--teacher_gpu_ids", "[1]"],
        ["--teacher.type", "model", "--teacher_gpu_ids", "2,3"],
        ["--trainer_gpu_ids", "0", "--inference_gpu_ids", "[1]"],
        ["--trainer.loss.adv_tau", "0.5"],
        ["--max_async_level", "2"],
        ["--seq_len", "8192"],
        ["--teacher.type", "model", "--teacher.seq_len", "1024"],
        ["--trainer.loss.advantage", "rae", "--orchestrator.rollouts_per_example", "1"],
    ],
)
def test_what_acts_is_accepted(argv: list[str]) -> None:
    load(RLConfig, [*ENV, *argv], {})


def test_every_preset_resolves_without_overrides() -> None:
    for name, preset in PRESETS.items():
        choices = LossConfig(type=name).resolve()
        expected = preset.advantage, preset.policy, preset.aggregation
        assert (choices.advantage, choices.policy, choices.aggregation) == expected
        load(RLConfig, [*ENV, "--trainer.loss.type", name], {})


def test_preset_hyperparameters_follow_the_papers() -> None:
    assert LossConfig().resolve().policy_args == {"delta": 8.0}
    assert LossConfig(type="reinforce").resolve().baseline == 0.5
    numbers = {name: LossConfig(type=name).resolve().policy_args for name in PRESETS}
    assert numbers["grpo"] == numbers["dr_grpo"] == {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": 0.0}
    assert numbers["dapo"] == {"eps_low": 0.2, "eps_high": 0.28, "dual_clip": 0.0}
    assert numbers["gspo"] == {"eps_low": 3e-4, "eps_high": 4e-4}
    assert numbers["cispo"] == {"eps_low": 1.0, "eps_high": 5.0}
    assert numbers["rloo"] == {"max_weight": 0.0}


def test_overrides_replace_one_choice_and_its_hyperparameters() -> None:
    choices = LossConfig(type="dapo", policy="gspo", eps_high=0.5).resolve()
    assert (choices.advantage, choices.policy, choices.aggregation) == ("grpo", "gspo", "token")
    assert choices.policy_args == {"eps_low": 3e-4, "eps_high": 0.5}
