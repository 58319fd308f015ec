"""Serves the engine over HTTP: OpenAI's routes, token-in/token-out, administration, metrics. Knows nothing of training.

This package translates between text and token ids; the engine only knows token ids. Needs the extra `server`.
"""

from slimrl.errors import UserError, install_hint

try:
    import fastapi
    import prometheus_client
    import uvicorn
except ModuleNotFoundError as error:
    raise UserError(
        f"The inference server needs the package {error.name}, which is not installed. Install the extra: "
        f"{install_hint('server')}."
    ) from None

__all__ = ["fastapi", "prometheus_client", "uvicorn"]
