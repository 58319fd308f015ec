"""`slimrl.integrations.slime.generate`, by which SLIME's command lines know the function of slimrl-envs."""

from slimrl.plugins import INTEGRATIONS, load

generate = load(INTEGRATIONS, "slime", "the plug-in")
