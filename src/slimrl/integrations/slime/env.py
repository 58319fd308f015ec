"""`slimrl.integrations.slime.env`, by which settings of SLIME name a module of slimrl-envs."""

from slimrl.plugins import INTEGRATIONS, load

build_env = load(INTEGRATIONS, "slime.env", "the plug-in")
