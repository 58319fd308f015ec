"""Writes and reads batches as files, one safetensors file per training step.

    lengths_B       int64       the number of tokens of each sample
    versions_B      int64       the oldest weight version that sampled a token of each sample
    rows_B          int64       the line of each sample in the step's file of rollouts; -1 if it is not there
    token_ids_T     int64       the tokens of all samples, one after the other
    loss_mask_T     bool        True if a token is trained
    logprobs_T      float64     the sampler's log-probability of each token
    advantages_T    float64     the advantage of each token
    rewards_T       float64     the reward of each token with a value head; else empty
    content_N       uint8       JSON in UTF-8: the `temperature`, `metrics` and `orchestrator_state` of the batch

The file's metadata has the field `format` with the value "slimrl-batch-2". Numbers keep all their bits. A file contains
no code.
"""

import json
import math
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from slimrl.errors import UserError
from slimrl.io.files import replace_file
from slimrl.transport.base import Batch
from slimrl.types import Sample

FORMAT = "slimrl-batch-2"
OF_SAMPLES = {"lengths_B": torch.int64, "versions_B": torch.int64, "rows_B": torch.int64}
OF_TOKENS = {
    "token_ids_T": torch.int64,
    "loss_mask_T": torch.bool,
    "logprobs_T": torch.float64,
    "advantages_T": torch.float64,
    "rewards_T": torch.float64,
}
DTYPES = OF_SAMPLES | OF_TOKENS
ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # numbers that JSON lacks


def write_batch(batch: Batch, path: Path) -> None:
    """Write a batch to a file. The file appears complete or not at all. Raises UserError if it cannot be written."""
    values: dict[str, list[Any]] = {
        "lengths_B": [len(sample.token_ids_T) for sample in batch.samples],
        "versions_B": [sample.version for sample in batch.samples],
        "rows_B": [sample.row for sample in batch.samples],
        **{name: [one for sample in batch.samples for one in getattr(sample, name)] for name in OF_TOKENS},
    }
    content = {
        "temperature": batch.temperature,
        "metrics": {name: value if math.isfinite(value) else str(value) for name, value in batch.metrics.items()},
        "orchestrator_state": dict(batch.orchestrator_state),
    }
    tensors = {name: torch.tensor(values[name], dtype=DTYPES[name]) for name in values}
    # The content is a tensor, because metadata is limited to 100 MB. `orchestrator_state` has all unused groups, and
    # may be larger.
    text = bytearray(json.dumps(content, allow_nan=False).encode())
    tensors["content_N"] = torch.frombuffer(text, dtype=torch.uint8)
    replace_file(path, [save(tensors, {"format": FORMAT})])


def read_batch(path: Path) -> Batch:
    """Read the batch in a file. Raises UserError if it is malformed, or of another format."""
    whole = path.read_bytes()
    try:
        # Load from memory: the library would map the file, and a program that truncates the file would then kill this
        # process.
        tensors = load(whole)
        metadata = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]
        if metadata["format"] != FORMAT:
            raise ValueError(f"its format is {metadata['format']:.80}, not {FORMAT}")
        content = json.loads(tensors.pop("content_N").numpy().tobytes())
        metrics = {name: ODD[one] if isinstance(one, str) else one for name, one in content.pop("metrics").items()}
        return Batch(_samples(tensors), metrics=metrics, **content)
    except (SafetensorError, LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
        raise UserError(f"{path} is no batch: {type(error).__name__}: {error}.") from None


def _samples(tensors: dict[str, Tensor]) -> tuple[Sample, ...]:
    """Return the samples that the tensors of a file contain. Raises LookupError, ValueError or AssertionError if the
    tensors are inconsistent."""
    values = {name: one.tolist() for name, one in tensors.items()}
    lengths = values["lengths_B"]
    if sum(lengths) != len(values["token_ids_T"]):
        raise ValueError("its tensors are not as long as its samples")
    of_samples = zip(lengths, accumulate(lengths), values["versions_B"], values["rows_B"], strict=True)
    return tuple(
        Sample(version=version, row=row, **{name: tuple(values[name][end - length : end]) for name in OF_TOKENS})
        for length, end, version, row in of_samples
    )
