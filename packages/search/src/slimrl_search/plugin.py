"""The command of slimrl-search, as its entry point names it."""

from slimrl.plugins import Command

JUDGE = Command(
    "find out how far a judge of answers agrees with labelled ones", run="slimrl_search.judge.command:run_judge"
)
