"""Provides slimrl-envs' filter `no_failed_game` here, for SLIME's option `--dynamic-sampling-filter-path`. The filter
drops groups with a failed game."""

from slimrl.plugins import INTEGRATIONS, load

no_failed_game = load(INTEGRATIONS, "slime.filter", "the plug-in")
