"""The command of slimrl-view, for its entry point."""

from slimrl.plugins import Command

VIEW = Command(
    "see runs in the browser, live: curves, groups, rollouts, tokens",
    run="slimrl_view.command:run_view",
)
