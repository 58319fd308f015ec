"""Provides the `judge` command for the entry point of slimrl-search."""

from slimrl.plugins import Command

JUDGE = Command(
    "find out how far a judge of answers agrees with labelled ones", run="slimrl_search.judge.command:run_judge"
)
