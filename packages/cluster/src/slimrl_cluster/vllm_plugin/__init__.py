"""slimrl's plug-in for vLLM: a weight transfer engine that reads directories of safetensors and takes broadcasts, on
every device.

It runs inside of vLLM's processes, which have an environment of their own: it needs nothing but vLLM, PyTorch and those
modules of slimrl that need no more.
"""

import contextlib

from slimrl.models.weight_files import VLLM_ENGINE


def register() -> None:
    """Makes the engine known to vLLM, which calls this in each of its processes."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory  # only there: importing it takes seconds

    with contextlib.suppress(ValueError):  # it is known: the plug-in is installed, and on the path as well
        WeightTransferEngineFactory.register_engine(VLLM_ENGINE, "slimrl_cluster.vllm_plugin.engine", "WeightsEngine")
