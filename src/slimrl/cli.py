"""The command line: `slimrl rl ...`, or `rl ...`. Reads the configuration, then hands over; does no work of its own.

Only here do imports of our own stand inside functions: `slimrl --help` answers before anything heavy is loaded.
"""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slimrl.errors import UserError, nearest, visible
from slimrl.io.invocation import allow_any_letter, check_words, command_prefix
from slimrl.io.last_resort import end_quietly, end_when_interrupted
from slimrl.io.secrets import redact, redact_words

if TYPE_CHECKING:
    from slimrl.config.base import CommandConfig
    from slimrl.config.reading.load import C, Resolved

OVERVIEW = """\
slimrl: reinforcement learning for small language models, on the hardware you have.

usage: slimrl COMMAND [@ FILE ...] [--key VALUE ...]

  slimrl init       copy the examples into a directory of yours
  slimrl rl         train by reinforcement learning: sample, score, update, repeat
  slimrl sft        train on given conversations (supervised fine-tuning)
  slimrl eval       measure a model on held-out tasks, with 95% intervals, beside baselines
  slimrl probe      find out what distillation from a teacher could gain
  slimrl launch     write the batch script that runs `rl` over the nodes of a SLURM cluster
  slimrl plan       say beforehand what a run takes, in memory, on disk and in time
  slimrl doctor     look at this machine: what will be used, why, and what mends it
  slimrl compare    compare two such measurements, task by task
  slimrl view       see runs in the browser, live: curves, groups, rollouts, tokens
  slimrl status     say who does what in a run, who waits for whom, and how far it is
  slimrl scale      change the number of samplers of a run that goes on
  slimrl plot       draw the metrics of runs, several over one another
  slimrl check-curve  say whether a run behaves like the recorded ones of its recipe
  slimrl push       upload weights with their model card, or a run, to the Hugging Face Hub
  slimrl play       play an environment yourself, in the terminal
  slimrl check      try an environment of yours: what it rewards, what breaks it
  slimrl trainer    run the trainer alone: on made-up samples, or as a part of an `rl` run
  slimrl inference  serve a model over HTTP, in OpenAI's protocol, or as a part of an `rl` run
  slimrl orchestrator  collect the batches of an `rl` run whose parts are processes of their own
  slimrl worker     play environments of an `rl` run, on any machine of it
  slimrl judge      find out how far a judge of answers agrees with labelled ones
  slimrl translate  turn a settings file of prime-rl into one of slimrl's

In a checkout `slimrl` is `uv run slimrl`, or what it says once .venv is active. Most are commands of their own too
(`rl ...`). `slimrl COMMAND --help` lists the settings of one.

Start here: a model of 135 million parameters learns to reverse text, on a CPU (`slimrl init .` brings the examples)
  slimrl rl @ examples/reverse_text/rl.toml
See what a run would do, and where each of its settings comes from
  slimrl rl @ examples/reverse_text/rl.toml --max_steps 20 --dry-run
Measure what it learned
  slimrl eval @ examples/reverse_text/eval.toml --model.name OUTPUT_DIR/weights/step_N
"""

COMPARE = """\
usage: slimrl compare FIRST SECOND

Compares two evaluations of the same tasks, task by task: the difference of the means with its 95% interval (paired
bootstrap), in how many tasks the first is ahead and behind, and how probable so uneven a split would be if neither were
better (p of the exact sign test, which for right and wrong answers is McNemar's).

FIRST and SECOND are the output directories of `slimrl eval` or of a finished `slimrl rl`, or files in their held_out/.

  slimrl compare outputs/eval-rl outputs/eval-sft
  slimrl compare outputs/eval/held_out/eval_greedy.jsonl outputs/eval/held_out/eval_sampled.jsonl
"""


# What starts each command with settings alone, as module:function; their classes are `COMMANDS` of `config/run.py`.
RUNS = {
    "rl": "slimrl.commands.rl:run_rl",
    "sft": "slimrl.commands.sft:run_sft",
    "trainer": "slimrl.commands.trainer:run_trainer",
    "eval": "slimrl.commands.eval:run_eval",
    "probe": "slimrl.commands.probe:run_probe",
    "inference": "slimrl.commands.inference:run_inference",
}

# The parts of an `rl` run as processes of their own, which read the same file. Two of them have another use as well.
PARTS = {
    "trainer": "slimrl.commands.trainer:run_trainer_of_rl",
    "orchestrator": "slimrl.commands.orchestrator:run_orchestrator",
    "inference": "slimrl.commands.inference:run_sampler_of_rl",
    "worker": "slimrl.commands.worker:run_worker_of_rl",
}
SUPERVISOR = "slimrl.commands.supervise:run_supervisor"
PART_HELP = """\
`slimrl {name}` is a part of an `rl` run as a process of its own, on the same host as the others, with the same file:

  slimrl inference @ FILE       samples tokens
  slimrl orchestrator @ FILE    plays episodes, makes batches, evaluates
  slimrl trainer @ FILE         trains
  slimrl worker @ FILE          plays environments for the orchestrator (deployment.num_workers)

They find one another in the run's directory; `slimrl rl @ FILE --deployment.type processes` starts and watches them.
The settings are those of `rl`.

"""

# Commands that read their arguments themselves.
OWN_ARGUMENTS = {
    "plot": "slimrl.commands.plot:run_plot",
    "status": "slimrl.commands.status:run_status",
    "scale": "slimrl.commands.scale:run_scale",
    "check-curve": "slimrl.commands.check_curve:run_check_curve",
    "push": "slimrl.commands.push:run_push",
    "doctor": "slimrl.commands.doctor:run_doctor",
    "judge": "slimrl.commands.judge:run_judge",
    "init": "slimrl.commands.init:run_init",
    "translate": "slimrl.commands.translate:run_translate",
    "launch": "slimrl.commands.launch:run_launch",
}

# How to go on after Ctrl-C, where nothing is left to resume.
AGAIN = {
    "inference": "serve again",
    "play": "play again",
    "push": "go on, without what is there already",
    **dict.fromkeys(
        ("probe", "plan", "check", "compare", "view", *(name for name in OWN_ARGUMENTS if name != "push")),
        "start over",
    ),
}


# Those that compute where Ctrl-C may not reach them, and that lose nothing by ending at once.
COMPUTE = ("rl", "sft", "eval", "trainer", "orchestrator", "probe", "plan")


def main() -> int:
    """The console script `slimrl`: returns the exit status."""
    return _start()


def _start(*command: str) -> int:
    argv = [*command, *sys.argv[1:]]
    if argv and argv[0] in COMPUTE:
        end_when_interrupted(visible(_interrupt_advice(argv)))
    return end_quietly(partial(run, argv))


# The console scripts of these names.
rl, sft, trainer, eval_ = (partial(_start, name) for name in ("rl", "sft", "trainer", "eval"))
inference, orchestrator = (partial(_start, name) for name in ("inference", "orchestrator"))


def run(argv: Sequence[str]) -> int:
    """Run one command line. Returns the run's exit status, 2 after a mistake of the user's, 130 after Ctrl-C."""
    allow_any_letter()
    if not argv or argv[0] in ("-h", "--help", "help"):
        return _show(OVERVIEW)
    if argv[0] == "--version":
        from importlib.metadata import version

        return _show(f"slimrl {version('slimrl')}\n")
    try:
        check_words(argv)
        return _find(argv[0])(argv[1:])
    except UserError as error:
        print(redact(visible(f"slimrl: {error}")), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(visible(_interrupt_advice(argv)), file=sys.stderr)
        return 130


def _find(name: str) -> Callable[[Sequence[str]], int]:
    """The function of a command, from its arguments to an exit status. Raises UserError with the nearest name."""
    commands: dict[str, Callable[[Sequence[str]], int]] = {
        **{command: partial(_run_with_config, command) for command in (*RUNS, *PARTS)},
        **{command: partial(_call, function) for command, function in OWN_ARGUMENTS.items()},
        "plan": _plan,
        "compare": _compare,
        "view": _view,
        "play": _play,
        "check": _check,
    }
    if name.startswith(("@", "-")):
        raise UserError(f"{name}: the command comes first, as in `slimrl rl {name} ...`. Known: {', '.join(commands)}.")
    if name not in commands:
        raise UserError(f"there is no command `{name}`.{nearest(name, commands)}")
    return commands[name]


def _call(function: str, argument: Any) -> int:
    """The exit status of a function given as `module:function`, whose module is imported now."""
    module, _, name = function.partition(":")
    status: int = getattr(import_module(module), name)(argument)
    return status


def _run_with_config(name: str, argv: Sequence[str]) -> int:
    """Runs a command of `RUNS`, whose module is imported when its configuration is known to be valid."""
    from slimrl.config.run import COMMANDS, RLConfig

    is_part = name in PARTS and (name not in RUNS or _has_orchestrator(argv))

    def start(resolved: "Resolved[CommandConfig]") -> int:
        config = resolved.config
        supervises = name == "rl" and isinstance(config, RLConfig) and config.deployment.type in ("processes", "ray")
        return _call(SUPERVISOR if supervises else PARTS[name] if is_part else RUNS[name], resolved)

    if name not in RUNS and {"-h", "--help"} & set(argv):
        _show(PART_HELP.format(name=name))
    # A part shares the directory with the others, and is started by who has looked already.
    return run_command(RLConfig if is_part else COMMANDS[name], argv, start, name=name, is_run=not is_part)


def _has_orchestrator(argv: Sequence[str]) -> bool:
    """Whether a command line has the settings of an `rl` run."""
    if {"-h", "--help"} & set(argv):
        return False
    from slimrl.config.reading.flags import names_section

    return names_section(argv, "orchestrator")


def _compare(argv: Sequence[str]) -> int:
    if {"-h", "--help"} & set(argv):
        return _show(COMPARE)
    if len(argv) != 2 or any(word.startswith("-") for word in argv):
        raise UserError("compare takes two things to compare; `slimrl compare --help` has examples.")
    from slimrl.commands.compare import run_compare

    return run_compare(Path(argv[0]), Path(argv[1]))


def _view(argv: Sequence[str]) -> int:
    from slimrl.commands.view import run_view

    if "--terminal" not in argv:
        return run_view(argv)
    from slimrl.viewer.terminal.app import show  # loads Textual, which is an extra

    return run_view(argv, show)


def _play(argv: Sequence[str]) -> int:
    from slimrl.config.play import PlayConfig

    def start(resolved: "Resolved[PlayConfig]") -> int:
        from slimrl.commands.play import run_play

        if not resolved.config.model.name:  # then PyTorch is not needed, and the game begins at once
            return run_play(resolved)
        from slimrl.launch.opponent import seat_model

        return run_play(resolved, seat_model)

    if not argv:
        from slimrl.environments.find import BUILTIN

        raise UserError(f"play needs an environment, as in `slimrl play {min(BUILTIN)}`. Known: {', '.join(BUILTIN)}.")
    named = not argv[0].startswith(("-", "@"))
    return run_command(PlayConfig, [f"--{PlayConfig.operand}", *argv] if named else argv, start)


def _plan(argv: Sequence[str]) -> int:
    from slimrl.config.plan import HELP, read_options

    if {"-h", "--help"} & set(argv):
        return _show(HELP)
    from slimrl.config.reading.flags import names_section
    from slimrl.config.run import RLConfig, SFTConfig

    words, options = read_options(argv)

    if options.on:
        from slimrl.plan.devices import find_machines

        find_machines(options.on)  # an unknown name is refused before PyTorch is imported

    def start(resolved: "Resolved[Any]") -> int:
        from slimrl.commands.plan import run_plan

        return run_plan(resolved, options)

    # A file of `sft` says where its data come from, one of `rl` what is played.
    is_sft = names_section(words, "data") and not names_section(words, "orchestrator")
    config_class: type[Any] = SFTConfig if is_sft else RLConfig
    return run_command(config_class, words, start, name="plan")


def _check(argv: Sequence[str]) -> int:
    from slimrl.config.check import CheckConfig

    as_json = "--json" in argv
    words = [word for word in argv if word != "--json"]

    def start(resolved: "Resolved[CheckConfig]") -> int:
        from slimrl.commands.check import run_check

        if resolved.config.model.name:
            from slimrl.config.model import ModelConfig
            from slimrl.models.load import load_chat

            return run_check(resolved, load_chat(ModelConfig(name=resolved.config.model.name)), as_json)
        from slimrl.models.chat.stand_in import stand_in_chat  # which needs no PyTorch

        return run_check(resolved, stand_in_chat(), as_json)

    if not words:
        from slimrl.environments.find import BUILTIN

        raise UserError(
            f"check needs an environment, as in `slimrl check {min(BUILTIN)}`. Known: {', '.join(BUILTIN)}."
        )
    named = not words[0].startswith(("-", "@"))
    return run_command(CheckConfig, ["--env.0.id", *words] if named else words, start)


def run_command(
    config_class: "type[C]",
    argv: Sequence[str],
    start: "Callable[[Resolved[C]], int]",
    environ: Mapping[str, str] = os.environ,
    name: str = "",
    is_run: bool = False,
) -> int:
    """Print the help or the resolved configuration if asked, else start the run. Returns the exit status. Raises
    UserError for wrong settings, and with `is_run` for what this machine lacks."""
    if asked := [place for place, word in enumerate(argv) if word in ("-h", "--help")]:
        from slimrl.config.reading.help import help_text

        behind = argv[asked[0] + 1 : asked[0] + 2]
        return _show(help_text(config_class, next((word for word in behind if not word.startswith(("-", "@"))), "")))
    from slimrl.config.reading.load import load

    dry_run = {"--dry-run", "--dry_run"}
    from slimrl.launch.data_files import check_data_files
    from slimrl.launch.model_names import check_model_names
    from slimrl.launch.tasksets import check_environments

    resolved = load(config_class, [word for word in argv if word not in dry_run], environ)
    if is_run and not dry_run & set(argv):
        from slimrl.launch.early import refuse_early

        refuse_early(resolved.config)
    check_model_names(resolved.config)
    check_data_files(resolved.config)
    # Before a directory is made for the run, or its settings are written anew.
    check_environments(resolved.config, make=bool(dry_run & set(argv)))
    if dry_run & set(argv):
        return _dry_run(resolved)
    _check_ranks(name or config_class.command)
    return start(resolved)


def _dry_run(resolved: "Resolved[C]") -> int:
    """Shows the settings, and for `sft` the first rows of its data."""
    from slimrl.config.reading.write import config_toml
    from slimrl.config.run import SFTConfig

    text = config_toml(resolved)
    if isinstance(resolved.config, SFTConfig):
        from slimrl.launch.masked_rows import show_rows  # imports PyTorch

        text += show_rows(resolved.config)
    return _show(text)


def _check_ranks(command: str) -> None:
    """Refuses a start by torchrun, under which each process would do all of the work, and write to the same directory.
    Raises UserError."""
    num = os.environ.get("WORLD_SIZE", "1") if "TORCHELASTIC_RUN_ID" in os.environ else "1"
    if num != "1" and command not in ("trainer", "sft"):
        raise UserError(
            f"torchrun started {num} processes, and `{command}` is one process in this version: only `trainer` and "
            f"`sft` can share their work. Start it as `slimrl {command} ...`."
        )


def _interrupt_advice(argv: Sequence[str]) -> str:
    """One line for Ctrl-C, with the command that continues the run."""
    again = f"{command_prefix()}slimrl {shlex.join(redact_words(argv))}"
    if argv[0] in AGAIN:
        return f"Interrupted. To {AGAIN[argv[0]]}: {again}"
    left = "with the episodes that are left" if argv[0] == "eval" else "from the last checkpoint"
    return f"Interrupted. To continue {left}: {again}{'' if '--resume' in argv else ' --resume'}"


def _show(text: str) -> int:
    """Prints to standard output; a reader such as `head` may close it early."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
