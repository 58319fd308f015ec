"""AdamW on float32 master weights, for a module that computes in bfloat16 or float32.

Small updates of a bfloat16 weight would be lost. The optimizer keeps float32 masters, and rounds them to the module's
weights after each update, at a fixed random threshold for each weight (`models/rounding.py`). Every weight of a
bfloat16 checkpoint starts exactly at a bfloat16 number. So the right share of the weights changes from the first update
on.

The memory per weight is the module's weight, 16 additional bits for the master, two float32 moments, and the gradient.
The gradient has the dtype of the backward pass, or float32 as soon as a second micro-batch is added. An update reads
all of them once, in pieces that stay in the processor's cache.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.adamw import adamw

from slimrl.config.train import OptimConfig, ScheduleConfig
from slimrl.models.lora import refresh_merged
from slimrl.models.native import ops
from slimrl.models.rounding import dither, draw_thresholds
from slimrl.models.shards import own_part, own_rows
from slimrl.trainer.parallel import ALONE, Ranks
from slimrl.types import Metrics

# The number of weights in one call of the update. On a CPU, 1 MiB of float32 fits into the cache. On a GPU a call costs
# more, so pieces are larger.
PIECE, DEVICE_PIECE = 1 << 18, 1 << 24


def schedule_factor(step: int, max_steps: int, config: ScheduleConfig) -> float:
    """Return the learning rate of the 0-based `step`, divided by the peak learning rate. A linear warm-up precedes the
    schedule `config.type`."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.type == "constant":
        return 1.0
    progress = (step - config.warmup_steps) / max(1, max_steps - config.warmup_steps)
    shape = 1 - progress if config.type == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * shape


@dataclass(frozen=True, slots=True)
class Head:
    """A module that is trained together with the policy, with the learning rate `lr`."""

    module: nn.Module
    lr: float


class MasterAdamW:
    """An AdamW optimizer with float32 masters for the trainable parameters of a module and of `heads`. Call `step`
    after the backward passes of all micro-batches. Gradients are summed over micro-batches and over `ranks`."""

    def __init__(
        self, module: nn.Module, config: OptimConfig, heads: Mapping[str, Head] | None = None, ranks: Ranks = ALONE
    ) -> None:
        trained = {name: (p, 1.0) for name, p in module.named_parameters() if p.requires_grad}
        for name, head in (heads or {}).items():
            trained |= {f"{name}.{part}": (p, head.lr / config.lr) for part, p in head.module.named_parameters()}
        device = next(module.parameters()).device
        # All pieces share the thresholds, to save memory.
        threshold = draw_thresholds(PIECE if device.type == "cpu" else DEVICE_PIECE, device).repeat(2)
        self._trained = {name: _Trained(parameter, threshold, lr) for name, (parameter, lr) in trained.items()}
        self._module = module
        self._config = config
        self._ranks = ranks
        self._updates = 0

    @torch.no_grad()
    def step(self, lr_factor: float) -> Metrics:
        """Clip the gradient, update masters and module, and clear gradients. Return the `optim/...` metrics.

        The logged gradient norm is the norm before clipping. If this norm is not finite, the update is skipped.
        """
        lr, config = self._config.lr * lr_factor, self._config
        self._sum_over_ranks()
        norm = self._gradient_norm()
        skipped = not math.isfinite(norm)
        if not skipped:
            self._updates += 1
            # The update scales each piece of the gradient. Scaling all gradients first would read the memory once more.
            clip = min(1.0, config.max_grad_norm / (norm + 1e-6))
            for trained in self._trained.values():
                trained.update(config, lr, clip, self._updates)
            refresh_merged(self._module)  # merge the adapter again, from the new weights
        self.discard()
        return {"optim/lr": lr, "optim/grad_norm": norm, "optim/skipped": float(skipped)}

    def _sum_over_ranks(self) -> None:
        """Replace each unsharded gradient with its sum over the processes. Sharded gradients are already summed."""
        for trained in self._trained.values():
            if self._ranks.num > 1 and not trained.is_sharded:
                self._ranks.add(trained.float_gradient())

    def _gradient_norm(self) -> float:
        """Return the norm of the whole gradient. All processes get the same value."""
        squares = {True: 0.0, False: 0.0}
        for sharded in squares:
            found = [t.gradient for t in self._trained.values() if t.is_sharded == sharded and t.gradient is not None]
            norms = [torch.linalg.vector_norm(gradient, dtype=torch.float32) for gradient in found]
            squares[sharded] = float(torch.linalg.vector_norm(torch.stack(norms))) ** 2 if norms else 0.0
        (of_shards,) = self._ranks.sums([squares[True]])
        return math.sqrt(of_shards + squares[False])

    def discard(self) -> None:
        """Drop the gradients of the backward passes since the last step."""
        for trained in self._trained.values():
            trained.gradient = None

    def detach(self) -> None:
        """Remove the hooks on the module's parameters, so that another optimizer can train them."""
        for trained in self._trained.values():
            trained.hook.remove()
        self.discard()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a resumed run: the number of updates, and the masters and moments by parameter name.

        The tensors are sharded like the parameters. They are not copies: the next `step` changes them.
        """
        states = {name: trained.state() for name, trained in self._trained.items()}
        return {"updates": self._updates, "parameters": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load masters and moments, sharded or not. Weight decay, betas and eps are kept from this optimizer's config.

        Raises KeyError, ValueError or RuntimeError if the state belongs to another model.
        """
        if unknown := state["parameters"].keys() - self._trained.keys():
            raise KeyError(f"the model has no {min(unknown)}")
        for name, trained in self._trained.items():
            trained.load(state["parameters"][name])
        refresh_merged(self._module)
        self._updates = int(state["updates"])


class _Trained:
    """One parameter: its master, AdamW's moments of its gradient, and the gradient of the current step.

    A bfloat16 number is the upper half of a float32 number's bits. So the master of a bfloat16 weight needs only 16
    bits in addition to the weight. They are in `_low`: master bits + threshold = (weight bits, low bits). Because the
    weight is a part of the master, no other code may write to the weight.
    """

    def __init__(self, parameter: nn.Parameter, threshold: Tensor, lr_ratio: float) -> None:
        assert parameter.dtype in (torch.bfloat16, torch.float32), f"no master for {parameter.dtype}"
        self._parameter = parameter
        self._weight = own_part(parameter.detach()).view(-1)
        self._shape = parameter.shape
        # A shard uses the thresholds at the same positions as in the whole parameter, so sharding does not change the
        # rounding.
        size, offset = len(threshold) // 2, own_rows(parameter).start * math.prod(self._shape[1:])
        self._threshold = threshold[offset % size :][:size]
        self._lr_ratio = lr_ratio
        rounded = parameter.dtype != torch.float32
        self._low = torch.empty_like(self._weight, dtype=torch.int16) if rounded else None
        self._mean, self._square = (torch.zeros_like(self._weight, dtype=torch.float32) for _ in range(2))
        for piece in self._pieces():
            self._write(piece, self._weight[piece].float())
        self.gradient: Tensor | None = None
        self.hook = parameter.register_post_accumulate_grad_hook(self._collect)

    def update(self, config: OptimConfig, lr: float, clip: float, t: int) -> None:
        """Apply AdamW's update t (1711.05101) with the gradient times `clip`. Weight decay applies to matrices only."""
        if self.gradient is None:
            return
        lr *= self._lr_ratio
        # As usual, vectors (biases and norms) do not decay.
        decay = config.weight_decay if len(self._shape) >= 2 else 0.0
        # The kernel reads and writes each number once. PyTorch's AdamW needs float32 copies of master and gradient. The
        # copies are made one piece at a time, so that they stay in the processor's cache.
        if ops.available(self._weight):
            left = 1 - config.beta1**t, 1 - config.beta2**t
            settings = ops.AdamWSettings(lr, config.beta1, config.beta2, config.eps, decay, clip, *left)
            state = ops.Master(self._weight, self._low, self._threshold, self._mean, self._square)
            ops.adamw(state, self.gradient, settings)
            return
        for piece in self._pieces():
            master, gradient = self._read(piece), self.gradient[piece].to(torch.float32, copy=True).mul_(clip)
            adamw(
                [master],
                [gradient],
                [self._mean[piece]],
                [self._square[piece]],
                [],
                # `adamw` adds 1 before it uses the count. Unlike `torch.tensor`, `torch.full` does not wait for a GPU.
                [torch.full((), t - 1.0, device=self._weight.device)],
                lr=lr,
                beta1=config.beta1,
                beta2=config.beta2,
                eps=config.eps,
                weight_decay=decay,
                fused=True,
                amsgrad=False,
                maximize=False,
            )
            self._write(piece, master)

    def float_gradient(self) -> Tensor:
        """Return the gradient in float32, zeros if there is none. The caller may change it in place."""
        if self.gradient is None:
            self.gradient = torch.zeros_like(self._weight, dtype=torch.float32)
        self.gradient = self.gradient.float()
        return self.gradient

    def state(self) -> dict[str, Tensor]:
        """Return the master and the moments, in the parameter's shape."""
        master = torch.cat([self._weight.new_empty(0, dtype=torch.float32), *map(self._read, self._pieces())])
        tensors = {"master": master, "mean": self._mean, "square": self._square}
        return {name: self._reshape(tensor) for name, tensor in tensors.items()}

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Load the master and the moments from `state`, and set the module's weight to the rounded master."""
        for name, tensor in state.items():
            if tensor.shape != self._shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, the parameter {tuple(self._shape)}")
        rows = own_rows(self._parameter) if self.is_sharded else ...
        mine = {name: own_part(t) if isinstance(t, DTensor) else t[rows] for name, t in state.items()}
        self._mean.copy_(mine["mean"].reshape(-1))
        self._square.copy_(mine["square"].reshape(-1))
        master = mine["master"].reshape(-1).to(self._weight.device)
        for piece in self._pieces():
            self._write(piece, master[piece])

    def _collect(self, parameter: Tensor) -> None:
        """Move the new gradient out of the parameter, and add it in float32 to the sum of earlier micro-batches.

        This hook runs right after a parameter's gradient is computed, so the gradients of a micro-batch are never
        stored twice.
        """
        assert parameter.grad is not None
        # If `grad` is None, autograd stores the next micro-batch's gradient unchanged. Otherwise autograd would add the
        # two gradients in the parameter's dtype, with a rounding error.
        fresh, parameter.grad = own_part(parameter.grad).contiguous().view(-1), None
        if self.gradient is None:
            self.gradient = fresh
            return
        self.gradient = self.gradient.float()
        for piece in self._pieces():  # in pieces, because `add_` first makes a float32 copy of its argument
            self.gradient[piece].add_(fresh[piece])

    @property
    def is_sharded(self) -> bool:
        """Return True if this process holds only a part of the parameter."""
        return isinstance(self._parameter, DTensor)

    def _reshape(self, flat: Tensor) -> Tensor:
        """Return `flat` in the parameter's shape, as a sharded tensor if the parameter is sharded."""
        like = self._parameter
        part = flat.view(own_part(like).shape)
        if not isinstance(like, DTensor):
            return part
        return DTensor.from_local(part, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())

    def _pieces(self) -> Iterator[slice]:
        size = len(self._threshold)
        return (slice(start, start + size) for start in range(0, len(self._weight), size))

    def _read(self, piece: slice) -> Tensor:
        """Return a piece of the master in float32. For a float32 weight this is a view of the weight. For a bfloat16
        weight it is computed from the weight (upper 16 bits), `_low` (lower 16 bits) and the threshold."""
        weight = self._weight[piece]
        if self._low is None:
            return weight
        # The lower half is first in memory (little-endian), so two int16 are read as the right int32.
        halves = torch.stack((self._low[piece], weight.view(torch.int16)), -1)
        return halves.view(torch.int32).view(-1).sub_(self._threshold[: len(weight)]).view(torch.float32)

    def _write(self, piece: slice, master: Tensor) -> None:
        """Set master and weight. The weight is the master, rounded at the threshold (`dither`)."""
        weight = self._weight[piece]
        if self._low is None:
            weight.copy_(master)
            return
        halves = dither(master, self._threshold)
        self._low[piece] = halves[:, 0]
        weight.view(torch.int16).copy_(halves[:, 1])
