"""`slimrl.integrations.slime.filter.no_failed_game`, by which command lines of SLIME name a function of slimrl-envs."""

from slimrl.plugins import INTEGRATIONS, load

no_failed_game = load(INTEGRATIONS, "slime.filter", "the plug-in")
