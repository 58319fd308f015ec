"""Rules across sections: what contradicts is refused, with every key that takes part and where it was set."""

import shlex

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.loss import PRESETS, LossConfig
from slimrl.config.reading.load import C
from slimrl.config.run import EvalRunConfig, ProbeConfig, RLConfig, SFTConfig, TrainerOnlyConfig
from tests.config.reading import ENV, error_of, read

REINFORCE = "--trainer.loss.type reinforce"
PURE = "--teacher.type model --trainer.loss.adv_tau 0"
SERVER = "--teacher.type server --teacher.base_url http://localhost:8000/v1 --teacher.model m"
FILE = "--data.type file --data.path x.jsonl"
REFUSED: dict[type[CommandConfig], dict[str, str]] = {
    RLConfig: {
        "--orchestrator.batch_size 20": "Set batch_size to 16 or 24.",
        "--orchestrator.batch_size 3": "Set batch_size to 8.",
        "--orchestrator.sampling.max_tokens 1024": "leaves no room for a prompt in seq_len = 1024",
        "--model.device gpu": 'model.device = "gpu" is no device',
        "--eval.temperatures '[0.7, 0.7000001]'": "names a temperature twice",
        "--trainer.schedule.min_lr_ratio 0.1": "trainer.schedule.min_lr_ratio = 0.1 cannot act",
        "--warmup.schedule.min_lr_ratio 0.1": "warmup.schedule.min_lr_ratio = 0.1 cannot act",
        "--orchestrator.rollouts_per_example 1": "a group of 1 has nothing to be compared with",
        "--trainer.loss.eps_low 0.2": 'trainer.loss.policy is here "aipo"',
        "--trainer.loss.type grpo --trainer.loss.delta 4": "is for the policy aipo",
        "--trainer.loss.baseline 0": "is for the advantage reinforce, and",
        "--trainer.loss.gamma 0.9": "is for the advantage gae, or the credit turn, and",
        "--trainer.loss.policy_args.delta 4": "arguments of a function of your own",
        "--trainer.loss.advantage_args.b 1": "arguments of a function of your own",
        "--trainer.loss.policy my.py:loss --trainer.loss.delta 4": "is for the policy aipo",
        "--trainer.loss.advantage gae --trainer.loss.credit turn": "a value head credits",
        "--trainer.loss.advantage rae --trainer.loss.credit turn": "the running mean is of",
        "--trainer.loss.type dapo --trainer.loss.policy aipo --trainer.loss.eps_high 0.3": (
            "trainer.loss.policy: --trainer.loss.policy"
        ),
        "--monitors.off '[\"length\"]' --monitors.max_length_factor 3": 'its monitor "length" is in',
        "--trainer.loss.adv_tau 0": "adv_tau = 0.0 leaves nothing to learn from",
        "--trainer.loss.adv_tau 0.5 --trainer.loss.advantage gae": "adv_tau does not go with",
        "--trainer.loss.teacher_tau 0.5": "teacher_tau cannot act without a teacher",
        "--trainer.loss.student_tau 0.1 --trainer.loss.advantage gae": "student_tau does not go",
        "--teacher.type policy": "the same weights read the same",
        "--teacher.type model --teacher.seq_len 1023": "cannot hold rollouts of seq_len = 1024",
        f"{SERVER} --teacher.seq_len 1024": "Set it to 1025 and what the teacher's context adds",
        f"{SERVER} --teacher.base_url localhost:8000": (
            'base_url = "localhost:8000": expected an address as http://localhost:8000/v1'
        ),
        "--teacher.type model --trainer.loss.advantage gae": "teacher.type does not go with",
        "--teacher.type model --trainer.loss.teacher_tau 0": "asks the teacher in vain",
        "--teacher_gpu_ids '[0]'": 'cannot act with teacher.type = "none"',
        f"{SERVER} --orchestrator.sampling.temperature 0.7": "at temperature 1 alone",
        "--inference.base_url localhost:8000": 'base_url = "localhost:8000": expected an address as http',
        "--inference.base_url http://localhost:8000/v1": (
            'base_url = "http://localhost:8000/v1": expected an address as http://localhost:8000, without a path'
        ),
        "--inference.vllm_program my-vllm": 'nothing but inference.backend "vllm" starts vLLM',
        "--inference.backend vllm --inference.api_key_variable KEY": "has no key",
        "--inference.base_url http://localhost:8000 --inference.vllm_program my-vllm": (
            "it is set where that server is started"
        ),
        f"{PURE} --trainer.loss.credit turn": "credit cannot act: with trainer.loss.adv_tau = 0",
        f"{PURE} {REINFORCE} --trainer.loss.baseline 0": "baseline cannot act: with trainer.loss.adv_tau",
        "--deployment.type one-process --inference.backend vllm": (
            'backend = "vllm" cannot act: deployment.type = "one-process" samples'
        ),
        "--deployment.type one-process --inference.base_url http://localhost:8000": (
            'base_url = "http://localhost:8000" cannot act: deployment.type'
        ),
        "--deployment.type one-process --deployment.num_samplers 2": "no other parts",
        "--deployment.address 10.0.0.1:6379": 'address = "10.0.0.1:6379" cannot act: it is for deployment.type "ray"',
        "--deployment.cpus 2": 'cpus = 2.0 cannot act: it is for deployment.type "ray"',
        "--deployment.gpus_per_sampler 2": 'gpus_per_sampler = 2 cannot act: it is for deployment.type "ray"',
        "--deployment.type ray --deployment.gpus_per_sampler 2": "slimrl's own sampler has one GPU",
        "--deployment.type ray --deployment.gpus_per_sampler 2 --inference.base_url http://a:1": (
            'gpus_per_sampler = 2 cannot act: the sampler at inference.base_url = "http://a:1" is one'
        ),
        "--deployment.type ray --inference_gpu_ids 0": (
            'inference_gpu_ids = [0] cannot act: with deployment.type = "ray" each part has GPUs of its own'
        ),
        "--inference.base_url http://localhost:1 --deployment.num_samplers 2": "num_samplers = 2 cannot act",
        "--inference.base_url http://localhost:8000 --warmup.max_steps 3": "may have other weights",
        "--deployment.num_trainers 0": "num_trainers",
        "--inference.base_url http://localhost:1 --inference_gpu_ids 0": "that it was started with",
        "--model.date 2026-13-31": 'model.date = "2026-13-31" is no date',
        "--model.date 20260131": 'model.date = "20260131" is no date',
    },
    ProbeConfig: {
        "": "nothing to probe",
        "--teacher.type model --warmup.max_steps 3": "the probe trains nothing",
        "--teacher.type model --resume": "nothing to continue",
    },
    TrainerOnlyConfig: {
        "--trainer.loss.teacher_tau 1": "cannot act without a teacher",
        "--trainer.loss.student_tau 1": "made-up samples have made-up advantages",
        "--trainer.loss.credit turn": "credit cannot act: made-up samples",
        "--trainer.loss.advantage rloo": "advantage cannot act: made-up samples",
        f"{REINFORCE} --trainer.loss.baseline 0": "baseline cannot act: made-up samples",
        "--seq_len 31": "data.prompt_len + data.completion_len = 32 tokens do not fit",
        "--data.batch_size 6": "Set batch_size to 4 or 8.",
    },
    SFTConfig: {
        f"{FILE} --data.val_path v --data.val_fraction 0.1": "data.val_fraction = 0.1 cannot act",
        f"{FILE} --schedule.min_lr_ratio 0.1": "schedule.min_lr_ratio = 0.1 cannot act",
    },
    EvalRunConfig: {
        "--env.0.id x --sampling.max_tokens 2000": "leaves no room for a prompt",
        "--env.0.id x --inference.backend vllm": "`eval` samples in its own process",
        "--env.0.id x --temperatures '[0.0]' --sampling.top_k 5": "top_k = 5 cannot act",
        "--env.0.id x --model.lora.rank 8": "model.lora.rank = 8 cannot act",
    },
}
ACCEPTED = [
    "--model.device cuda:1",
    "--wandb.project p",
    "--warmup.batch_size 8",
    "--orchestrator.batch_size 5 --orchestrator.rollouts_per_example 1 --trainer.loss.type reinforce",
    "--trainer.schedule.type cosine --trainer.schedule.min_lr_ratio 0.1",
    "--trainer.loss.policy clip --trainer.loss.eps_high 0.3",
    "--trainer.loss.advantage reinforce --trainer.loss.baseline 0",
    "--trainer.loss.student_tau 0.01",
    SERVER,
    "--teacher.type policy --teacher.env_args '{style = '\"'\"'word'\"'\"'}'",
    "--teacher.type model --trainer.loss.adv_tau 0 --orchestrator.rollouts_per_example 1",
    "--teacher.type model --teacher_gpu_ids '[1]'",
    "--teacher.type model --teacher_gpu_ids 2,3",
    "--trainer_gpu_ids 0 --inference_gpu_ids '[1]'",
    "--trainer.loss.adv_tau 0.5",
    "--max_async_level 2",
    "--seq_len 8192",
    "--teacher.type model --teacher.seq_len 1024",
    "--trainer.loss.advantage rae --orchestrator.rollouts_per_example 1",
    "--deployment.type ray --deployment.address local --deployment.cpus 0.5",
    "--deployment.type ray --deployment.num_samplers 4 --deployment.num_trainers 2",
    "--deployment.type ray --deployment.restarts 0",
    "--deployment.type ray --inference.backend vllm --deployment.gpus_per_sampler 4",
]


def config_of(words: str, config_class: type[C] = RLConfig) -> C:
    return read(config_class, *(ENV if issubclass(config_class, RLConfig) else []), *shlex.split(words))[0].config


@pytest.mark.parametrize(
    ("config_class", "words", "message"), [(one, *row) for one, rows in REFUSED.items() for row in rows.items()]
)
def test_contradiction_is_refused(config_class: type[CommandConfig], words: str, message: str) -> None:
    env = ENV if issubclass(config_class, RLConfig) else []
    assert message in error_of(config_class, *env, *shlex.split(words))


BASE_URL, ARGS = "--teacher.base_url", ["--env.0.id", "x", "--env.0.args.llm"]
USER = "has a user or a password in it"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--teacher.api_key_variable", "sk-secret"], "teacher.api_key_variable has what is no name of a variable"),
        ([BASE_URL, "http://me:secret@localhost:8000/v1"], f"teacher.base_url {USER}"),
        ([BASE_URL, "http://me:secret@localhost:many"], f"teacher.base_url {USER}"),
        ([*ARGS, '{ base_url = "http://me:secret@localhost/v1" }'], f"env.0.args.llm.base_url {USER}"),
        (
            [*ARGS, '[{ base_url = "http://localhost/v1" }, { base_url = "me:secret@localhost" }]'],
            f"env.0.args.llm.1.base_url {USER}",
        ),
    ],
)
def test_a_secret_in_settings_is_refused_and_not_shown(argv: list[str], said: str) -> None:
    is_eval = argv[0] == "--env.0.id"
    message = error_of(EvalRunConfig, *argv) if is_eval else error_of(RLConfig, *ENV, *SERVER.split(), *argv)
    assert said in message and "secret" not in message
    if is_eval:
        assert message.endswith(f"({said.split()[0]}: --env.0.args.llm)")


def test_contradiction_names_the_origin_of_each_side() -> None:
    environ = {"SLIMRL_ORCHESTRATOR__ROLLOUTS_PER_EXAMPLE": "6"}
    assert error_of(RLConfig, *ENV, "--orchestrator.batch-size", "20", **environ).endswith(
        "(orchestrator.batch_size: --orchestrator.batch-size; "
        "orchestrator.rollouts_per_example: SLIMRL_ORCHESTRATOR__ROLLOUTS_PER_EXAMPLE)"
    )


@pytest.mark.parametrize("words", ACCEPTED)
def test_what_acts_is_accepted(words: str) -> None:
    config_of(words)


def test_every_preset_resolves_without_overrides() -> None:
    for name, preset in PRESETS.items():
        choices = LossConfig(type=name).resolve()
        expected = preset.advantage, preset.policy, preset.aggregation
        assert (choices.advantage, choices.policy, choices.aggregation) == expected
        config_of(f"--trainer.loss.type {name}")


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
