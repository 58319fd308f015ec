"""The `view` command, for the entry point of slimrl-view."""

from slimrl.plugins import Command

VIEW = Command(
    "see runs in the browser, live: curves, groups, rollouts, tokens",
    run="slimrl_view.command:run_view",
)
