"""Defines the weight transfer engine. It loads safetensors from a directory.

vLLM imports this module if the engine is selected. vLLM stores weights in the layout of its kernels, so its layerwise
reload converts new weights layer by layer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
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
class WeightsInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """A directory on the server's machine that holds all weights of the model, in Hugging Face format."""

    weight_dir: str = ""


class WeightsEngine(WeightTransferEngine[WeightTransferInitInfo, WeightsInfo]):  # type: ignore[misc]
    """Loads new weights into vLLM's model. Names and shapes must equal those in the model's directory, with which vLLM
    was started."""

    init_info_cls = WeightTransferInitInfo
    update_info_cls = WeightsInfo
    _is_broken = False

    def init_transfer_engine(self, init_info: WeightTransferInitInfo) -> None:
        """No-op: directories need no preparation."""

    def start_weight_update(self) -> None:
        """No-op, because the model must keep its weights if a directory is refused later."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load weights. Unlike vLLM's own method, this does not wait for an accelerator if the device is a CPU."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: WeightsInfo) -> None:
        """Load a directory. Raises UserError, before any change, if the weights are incomplete or belong to another
        model. After an update has failed during loading, raises UserError for all later updates."""
        if self._is_broken:
            raise UserError("An earlier update broke off, and has left the weights half loaded: start vLLM again.")
        directory = Path(update_info.weight_dir)
        files = _files(directory)
        check_sums(directory, [file.path.name for file in files])
        self._check_shapes(str(directory), _shapes_of(files))
        # A partly loaded layer would use weights of the next update to complete itself, so a failure blocks all later
        # updates.
        self._is_broken = True
        initialize_layerwise_reload(self.model)
        self.model.load_weights(_tensors(files, self.device))
        self._is_broken = False

    def finish_weight_update(self) -> None:
        """Make vLLM sample from the new weights."""
        finalize_layerwise_reload(self.model, self.model_config)
        # A head that is tied to the embedding has no tensor to load, so the reload skips it. On a CPU it would keep its
        # kernel's copy of the old weights.
        for layer in self.model.modules():
            if isinstance(layer, ParallelLMHead) and self.model_config.hf_config.tie_word_embeddings:
                layer.quant_method.process_weights_after_loading(layer)

    def shutdown(self) -> None:
        """No-op: nothing is open between updates."""

    def _check_shapes(self, source: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        own, new = (self._without_copies(of) for of in (_shapes_of(_files(self._model_directory())), shapes))
        if new != own:
            name = min(name for name in own | new if own.get(name) != new.get(name))
            raise UserError(
                f"{name} in {source} has the shape {new.get(name, 'of nothing: it is missing')}, and "
                f"{own.get(name, 'none: it is unknown')} in the model that vLLM was started with."
            )

    def _model_directory(self) -> Path:
        """Return the model directory with which vLLM was started. If vLLM was started with a model on the Hub, return
        the directory to which it was downloaded."""
        name = self.model_config.model
        if Path(name).is_dir():
            return Path(name)
        return Path(snapshot_download(name, revision=self.model_config.revision, local_files_only=True))

    def _without_copies(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        # Ignore tensors that are tied or computed from the settings, because only some programs save them.
        copies = {"lm_head.weight"} if self.model_config.hf_config.tie_word_embeddings else set()
        return {name: it for name, it in shapes.items() if name not in copies and not name.endswith(".inv_freq")}


def _shapes_of(files: list[TensorFile]) -> dict[str, tuple[int, ...]]:
    return {name: kind.shape for file in files for name, kind in file.kinds.items()}


def _files(directory: Path) -> list[TensorFile]:
    paths = weight_files(directory)
    if not paths or any(path.suffix != ".safetensors" for path in paths):
        raise UserError(f"{directory} holds no safetensors on the machine of vLLM.")
    return [TensorFile(path) for path in paths]


def _tensors(files: list[TensorFile], device: torch.device) -> Iterator[tuple[str, Tensor]]:
    for file in files:
        for name, tensor in file.read():
            yield name, tensor.to(device)
