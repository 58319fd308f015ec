"""Defines the command that the entry point of slimrl-serve names."""

from slimrl.plugins import Command

INFERENCE = Command(
    "serve a model over HTTP, in OpenAI's protocol, or as a part of an `rl` run",
    run="slimrl_serve.start:run_inference",
    settings="slimrl.config.serve:ServeConfig",
    is_part=True,
    again="serve again",
)
