"""Returns a sharded parameter's rows that this process holds, or the whole tensor."""

from torch import Tensor
from torch.distributed.tensor import DTensor


def whole(tensor: Tensor) -> Tensor:
    """Return the whole tensor. If it is sharded, all processes must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_part(tensor: Tensor) -> Tensor:
    """Return the rows of a tensor that this process holds: all rows if it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def own_rows(tensor: Tensor) -> slice:
    """Return the range of this process's rows in the whole tensor."""
    num = len(tensor) if tensor.ndim else 1
    if not isinstance(tensor, DTensor):
        return slice(0, num)
    mesh = tensor.device_mesh
    chunk = -(-num // mesh.size())
    start = min(chunk * mesh.get_local_rank(), num)
    return slice(start, min(start + chunk, num))
