"""Provides a function of slimrl-envs as `slimrl.integrations.slime.filter.no_failed_game`, for command lines of
SLIME."""

from slimrl.plugins import INTEGRATIONS, load

no_failed_game = load(INTEGRATIONS, "slime.filter", "the plug-in")
