"""Defines the commands of slimrl-tools, to which the package's entry points refer."""

from slimrl.plugins import Command

PLAN = Command(
    "say beforehand what a run takes, in memory and in time",
    run="slimrl_tools.plan.options:run_plan_words",
    computes=True,
)
DOCTOR = Command(
    "look at this machine: what will be used, why, and what mends it", run="slimrl_tools.commands.doctor:run_doctor"
)
PUSH = Command(
    "upload weights with their model card to the Hugging Face Hub",
    run="slimrl_tools.commands.push:run_push",
    again="go on, without what is there already",
)
TRANSLATE = Command(
    "turn a settings file of prime-rl into one of slimrl's", run="slimrl_tools.commands.translate:run_translate"
)
CHECK_CURVE = Command(
    "say whether a run behaves like the recorded ones of its recipe",
    run="slimrl_tools.commands.check_curve:run_check_curve",
)
PROBE = Command(
    "find out what distillation from a teacher could gain",
    run="slimrl_tools.commands.probe:run_probe",
    settings="slimrl.config.run:ProbeConfig",
    computes=True,
)
PLAY = Command(
    "play an environment yourself, in the terminal",
    run="slimrl_tools.commands.play:run_play",
    settings="slimrl.config.play:PlayConfig",
    again="play again",
)
CHECK = Command(
    "try an environment of yours: what it rewards, what breaks it",
    run="slimrl_tools.commands.check:run_check",
    settings="slimrl.config.check:CheckConfig",
    switches=("--json",),
)
PLOT = Command("draw the metrics of a run", run="slimrl_tools.commands.plot:run_plot")
