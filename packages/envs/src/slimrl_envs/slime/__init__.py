"""The matching game as a rollout of SLIME: set `--custom-generate-function-path slimrl.integrations.slime.generate`."""

from slimrl_envs.slime.rollout import generate

__all__ = ["generate"]
