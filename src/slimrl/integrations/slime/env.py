"""Provides slimrl-envs' function `build_env` here, for SLIME's setting `rollout_interaction_env_path`."""

from slimrl.plugins import INTEGRATIONS, load

build_env = load(INTEGRATIONS, "slime.env", "the plug-in")
