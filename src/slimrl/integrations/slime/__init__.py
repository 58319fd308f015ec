"""Provides a function of slimrl-envs as `slimrl.integrations.slime.generate`, for command lines of SLIME."""

from slimrl.plugins import INTEGRATIONS, load

generate = load(INTEGRATIONS, "slime", "the plug-in")
