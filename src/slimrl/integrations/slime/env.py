"""Provides a function of slimrl-envs in the module `slimrl.integrations.slime.env`, for settings of SLIME."""

from slimrl.plugins import INTEGRATIONS, load

build_env = load(INTEGRATIONS, "slime.env", "the plug-in")
