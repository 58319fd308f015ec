"""Implements slimrl's plug-in for vLLM. It adds a weight transfer engine, which reads directories of safetensors on
every device.

The plug-in runs inside vLLM's processes, which have their own environment. So it uses only vLLM, PyTorch, and modules
of slimrl that need no other packages.
"""

import contextlib

from slimrl.models.weight_files import VLLM_ENGINE


def register() -> None:
    """Register the engine with vLLM. vLLM calls this function in each of its processes."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory  # only here: importing it takes seconds

    with contextlib.suppress(ValueError):  # already registered: the plug-in is installed, and also on the path
        WeightTransferEngineFactory.register_engine(VLLM_ENGINE, "slimrl_cluster.vllm_plugin.engine", "WeightsEngine")
