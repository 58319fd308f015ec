"""Parameters that processes share out: what each holds, and how all of them get the whole one."""

from torch import Tensor
from torch.distributed.tensor import DTensor


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor, of which this process may hold only some rows; then all processes must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_part(tensor: Tensor) -> Tensor:
    """The rows of a tensor that this process holds, all of them if it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def own_rows(tensor: Tensor) -> slice:
    """Which rows of the whole tensor this process holds."""
    num = len(tensor) if tensor.ndim else 1
    if not isinstance(tensor, DTensor):
        return slice(0, num)
    mesh = tensor.device_mesh
    chunk = -(-num // mesh.size())
    start = min(chunk * mesh.get_local_rank(), num)
    return slice(start, min(start + chunk, num))
