"""The weight transfer engine that loads safetensors from a directory. vLLM imports it once it was chosen.

vLLM keeps weights in the order of its kernels, and its layerwise reload brings new ones into it, layer by layer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from slimrl.io.checksums import check_sums
from slimrl.models.tensor_file import TensorFile


@dataclass
class FilesInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing: whoever updates the weights names a directory each time."""


@dataclass
class FilesUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """The directory of an update, on the server's machine: all weights of the model, in Hugging Face format."""

    weight_dir: str


class FilesEngine(WeightTransferEngine[FilesInitInfo, FilesUpdateInfo]):  # type: ignore[misc]
    """Loads all weights of a directory, which must be whole: names and shapes as in the first update, and checksums."""

    init_info_cls = FilesInitInfo
    update_info_cls = FilesUpdateInfo

    def init_transfer_engine(self, init_info: FilesInitInfo) -> None:
        """Nothing is to be prepared."""

    def start_weight_update(self) -> None:
        """Has vLLM collect new weights, layer by layer."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load a directory. vLLM's own waits for an accelerator, and a CPU is none."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FilesUpdateInfo) -> None:
        """Load a directory. Raises ValueError, before anything is changed, if it is not whole."""
        directory = Path(update_info.weight_dir)
        files = [TensorFile(path) for path in sorted(directory.glob("*.safetensors"))]
        if not files:
            raise ValueError(f"{directory} holds no safetensors on the machine of vLLM.")
        check_sums(directory, [file.path.name for file in files])
        self.model.load_weights(_tensors(files, self.device))

    def finish_weight_update(self) -> None:
        """Has vLLM sample from the new weights."""
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing is held."""


def _tensors(files: list[TensorFile], device: torch.device) -> Iterator[tuple[str, Tensor]]:
    for file in files:
        for name, tensor in file.read():
            yield name, tensor.to(device)
