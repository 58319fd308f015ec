"""A GPU that is not there: PyTorch's fake tensors on `cuda`, which have shapes, dtypes and devices, but no numbers.

Whatever mixes devices raises an error, as on a GPU. Whatever makes the program wait for the GPU is recorded with the
place in slimrl that did it: `.item()`, `.tolist()`, `float(...)`, a copy to the CPU, a copy from memory that is not
pinned. What needs to know numbers to know a shape (`nonzero`, boolean masks, `unique`) raises an error.

Autograd asks the CUDA driver for streams, so backward passes of fake `cuda` tensors fail where there is none. Here such
tensors say `meta` to autograd, as what they are made of, and `cuda` to Python and to PyTorch's check of devices.
"""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode

import slimrl
from slimrl.trainer.parallel import Ranks

CUDA = torch.device("cuda:0")
SOURCE = Path(slimrl.__file__).parent
aten = torch.ops.aten


class Waits(TorchDispatchMode):
    """Records the places that wait for the GPU, as `package/file.py function`, once for each call of theirs.

    What is asked for is answered by `number`.
    """

    supports_higher_order_operators = True  # FlexAttention is one

    def __init__(self, number: float = 0.0) -> None:
        TorchDispatchMode.__init__(self)
        self.places: list[str] = []
        self._number = number
        self._last_reading: object = None  # if nothing was computed since
        self._pinned: list[Tensor] = []  # kept, so that no other tensor gets the identity of one of them

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OpOverload) and func.namespace == "aten":
            if func not in (aten.item.default, aten._local_scalar_dense.default, aten.unbind.int):
                self._last_reading = None
            with self:  # in inference mode, `item` and `to` come here as they are, and not as what they consist of
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        if func is aten._local_scalar_dense.default:
            if args[0].device.type == "cuda":
                self._record()
            return {torch.bool: bool, torch.int64: int, torch.int32: int}.get(args[0].dtype, float)(self._number)
        if func is aten.lift_fresh.default and args[0].device.type == "meta":  # the list of `x[[0, 1]]`
            self._record()
        if func is aten.is_pinned.default:
            return any(args[0] is tensor for tensor in self._pinned)
        if func is aten._pin_memory.default:
            self._pinned.append(args[0])
            return args[0]
        out = func(*args, **kwargs)
        if isinstance(out, FakeTensor):
            out.constant = None  # it would be computed with for real, and so on the GPU, too
        if func in (aten._to_copy.default, aten.copy_.default):
            source = args[0] if func is aten._to_copy.default else args[1]
            devices = {source.device.type, out.device.type}
            waits = source.device.type == "cuda" or (not kwargs.get("non_blocking", False) and len(args) < 3)
            if devices == {"cpu", "cuda"} and (waits or not any(source is tensor for tensor in self._pinned)):
                self._record()
        if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
            indices = [index for index in args[1] if index is not None]
            if args[0].device.type == "cuda" and any(index.device.type == "cpu" for index in indices):
                self._record()
        return out

    def _record(self) -> None:
        """Record the innermost place of slimrl's in the present stack, unless it is still in the same call of torch."""
        frame = next((f for f in _frames() if Path(f.f_code.co_filename).is_relative_to(SOURCE)), None)
        if frame is None:  # the test's own doing
            return
        # One `.tolist()` of n numbers asks n times, from one instruction.
        reading = id(frame), frame.f_lasti
        if reading != self._last_reading:
            path = Path(frame.f_code.co_filename).relative_to(SOURCE)
            self.places.append(f"{path} {frame.f_code.co_name}")
        self._last_reading = reading


class Alone(Ranks):
    """One process. It keeps its numbers, where the original takes them through a tensor, which is fake here."""

    def sums(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def maxima(self, values: Sequence[float]) -> list[float]:
        return list(values)


def _frames() -> Iterator[Any]:
    return (frame for frame, _ in traceback.walk_stack(None))


@contextmanager
def fake_cuda(number: float = 0.0) -> Iterator[Waits]:
    """A context in which tensors on `cuda` can be made and computed with; it gives the record of what waits."""
    make, normalize = Tensor._make_subclass, FakeTensor._normalize_fake_device

    def make_subclass(cls: type, *args: Any, **kwargs: Any) -> Any:
        if cls is FakeTensor and kwargs["device_for_backend_keys"].type in ("cuda", "meta"):
            kwargs |= {"dispatch_device": False, "device_for_backend_keys": CUDA}
        return make(cls, *args, **kwargs)

    def on_cuda_if_meta(device: torch.device) -> torch.device:
        return CUDA if device.type == "meta" else normalize(device)

    waits = Waits(number)
    with torch.compiler.set_stance("force_eager"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "_make_subclass", staticmethod(make_subclass))
        patch.setattr(FakeTensor, "_normalize_fake_device", staticmethod(on_cuda_if_meta))
        # FlexAttention's kernels are not compiled, and only their shapes known.
        patch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        with FakeTensorMode(), waits:
            yield waits
