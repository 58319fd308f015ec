"""The commands of the core, for the entry points in pyproject.toml. No module of a command is imported here."""

from slimrl.plugins import Command

RUN = "slimrl.config.run:"

RL = Command(
    "train by reinforcement learning: sample, score, update, repeat",
    run="slimrl.commands.rl:run_rl",
    settings=RUN + "RLConfig",
    again="",
    computes=True,
)
SFT = Command(
    "train on given conversations (supervised fine-tuning)",
    run="slimrl.commands.sft:run_sft",
    settings=RUN + "SFTConfig",
    again="",
    computes=True,
)
TRAINER = Command(
    "run the trainer alone: on made-up samples, or as a part of an `rl` run",
    run="slimrl.commands.trainer:run_trainer",
    settings=RUN + "TrainerOnlyConfig",
    is_part=True,
    again="",
    computes=True,
)
EVAL = Command(
    "measure a model on held-out tasks, with 95% intervals, beside baselines",
    run="slimrl.commands.eval:run_eval",
    settings=RUN + "EvalRunConfig",
    again="",
    computes=True,
)
COMPARE = Command("compare two evaluations or runs, task by task", run="slimrl.commands.compare:run_compare")
INIT = Command("copy the examples into a directory of yours", run="slimrl.commands.init:run_init")
