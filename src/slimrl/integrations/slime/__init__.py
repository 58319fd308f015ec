"""Provides slimrl-envs' rollout function `generate` here, for SLIME's option `--custom-generate-function-path`."""

from slimrl.plugins import INTEGRATIONS, load

generate = load(INTEGRATIONS, "slime", "the plug-in")
