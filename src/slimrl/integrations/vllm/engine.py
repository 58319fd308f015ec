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
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from slimrl.errors import UserError
from slimrl.io.checksums import check_sums
from slimrl.models.tensor_file import TensorFile
from slimrl.models.weight_files import weight_files


@dataclass
class FilesInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing: whoever updates the weights names a directory each time."""


@dataclass
class FilesUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """The directory of an update, on the server's machine: all weights of the model, in Hugging Face format."""

    weight_dir: str


class FilesEngine(WeightTransferEngine[FilesInitInfo, FilesUpdateInfo]):  # type: ignore[misc]
    """Loads all weights of a directory, with the names and shapes of the directory that vLLM was started with."""

    init_info_cls = FilesInitInfo
    update_info_cls = FilesUpdateInfo

    def init_transfer_engine(self, init_info: FilesInitInfo) -> None:
        """Nothing is to be prepared."""

    def start_weight_update(self) -> None:
        """Nothing is done yet: a directory that is refused must not leave the model without weights."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load a directory. vLLM's own waits for an accelerator, and a CPU is none."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FilesUpdateInfo) -> None:
        """Load a directory. Raises UserError, before anything is changed, if it is not whole."""
        directory = Path(update_info.weight_dir)
        files = _files(directory)
        check_sums(directory, [file.path.name for file in files])
        own, new = self._shapes(_files(Path(self.model_config.model))), self._shapes(files)
        if new != own:
            name = min(name for name in own | new if own.get(name) != new.get(name))
            raise UserError(
                f"{name} in {directory} has the shape {new.get(name, 'of nothing: it is missing')}, and "
                f"{own.get(name, 'none: it is unknown')} in the model that vLLM was started with."
            )
        initialize_layerwise_reload(self.model)
        self.model.load_weights(_tensors(files, self.device))

    def finish_weight_update(self) -> None:
        """Has vLLM sample from the new weights."""
        finalize_layerwise_reload(self.model, self.model_config)
        # A head that is tied to the embedding has no tensor of its own to load, so the reload passes it over; on a CPU
        # it would go on with the copy that its kernel made of the old weights.
        for layer in self.model.modules():
            if isinstance(layer, ParallelLMHead) and self.model_config.hf_config.tie_word_embeddings:
                layer.quant_method.process_weights_after_loading(layer)

    def shutdown(self) -> None:
        """Nothing is held."""

    def _shapes(self, files: list[TensorFile]) -> dict[str, tuple[int, ...]]:
        # What is tied, or computed from the settings, some programs save and others do not.
        copies = {"lm_head.weight"} if self.model_config.hf_config.tie_word_embeddings else set()
        kinds = [item for file in files for item in file.kinds.items()]
        return {name: kind.shape for name, kind in kinds if name not in copies and not name.endswith(".inv_freq")}


def _files(directory: Path) -> list[TensorFile]:
    paths = weight_files(directory)
    if not paths or any(path.suffix != ".safetensors" for path in paths):
        raise UserError(f"{directory} holds no safetensors on the machine of vLLM.")
    return [TensorFile(path) for path in paths]


def _tensors(files: list[TensorFile], device: torch.device) -> Iterator[tuple[str, Tensor]]:
    for file in files:
        for name, tensor in file.read():
            yield name, tensor.to(device)
