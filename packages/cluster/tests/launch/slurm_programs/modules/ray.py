"""Stands for the package `ray`: a cluster whose nodes are lines of a file."""

import os
from pathlib import Path
from typing import Any


def init(address: str, **_: Any) -> None:
    """Fail unless the cluster's address and token are where Ray looks for them."""
    assert address == "auto" and os.environ["RAY_ADDRESS"] and os.environ["RAY_AUTH_MODE"] == "token"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def nodes() -> list[dict[str, Any]]:
    return [{"Alive": True} for _ in Path(os.environ["NODES"]).read_text().splitlines()]
