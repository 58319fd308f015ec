"""AdamW on float32 master weights, for a module that computes in bfloat16 or float32.

A bfloat16 weight near 1 moves in steps of 1/128, so small updates would vanish: the optimizer keeps float32 masters
and writes them back to the module after each step. Rounded to nearest, all weights would still stay where they were for
many steps, because those of a bfloat16 checkpoint begin exactly on a step; each is rounded at a threshold of its own
(dithering), so that the share of the weights that have moved is right from the first update on. Gradients are added up
in float32 as soon as they are made, and the module's own are freed, so micro-batches lose no precision.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from slimrl.config.train import OptimConfig, ScheduleConfig
from slimrl.types import Metrics

# Numbers moved at a time: 1 MiB in float32, which stays in the processor's cache.
PIECE = 1 << 18


def schedule_factor(step: int, max_steps: int, config: ScheduleConfig) -> float:
    """The learning rate of 0-based `step` as a multiple of the peak: a linear warm-up, then the chosen shape."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.type == "constant":
        return 1.0
    progress = (step - config.warmup_steps) / max(1, max_steps - config.warmup_steps)
    shape = 1 - progress if config.type == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
    return config.min_lr_ratio + (1 - config.min_lr_ratio) * shape


class MasterAdamW:
    """The module's parameters as float32 masters with their AdamW state. Call `step` after the backward passes."""

    def __init__(self, module: nn.Module, config: OptimConfig) -> None:
        self.names = [name for name, p in module.named_parameters() if p.requires_grad]
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self.masters = [_master(p) for p in self._parameters]
        self._hooks = []
        for parameter, master in zip(self._parameters, self.masters, strict=True):
            if master is not parameter:
                master.grad = torch.zeros_like(master)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(_moving_to(master)))
        generator = torch.Generator().manual_seed(0)  # the same thresholds in every run, so that runs repeat exactly
        threshold = torch.randint(1 << 16, (PIECE,), generator=generator, dtype=torch.int32)
        self._threshold = threshold.to(next(module.parameters()).device)
        self._config = config
        self._adamw = torch.optim.AdamW(
            [
                {"params": [m for m in self.masters if m.ndim >= 2], "weight_decay": config.weight_decay},
                {"params": [m for m in self.masters if m.ndim < 2], "weight_decay": 0.0},
            ],
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            fused=True,
        )

    def step(self, lr_factor: float) -> Metrics:
        """Clip, update masters and module, clear gradients. Returns the `optim/...` metrics: the gradient's norm is
        that before clipping, and when it is not finite the update is skipped."""
        lr = self._config.lr * lr_factor
        norm = float(nn.utils.clip_grad_norm_(self.masters, self._config.max_grad_norm))
        skipped = not math.isfinite(norm)
        if not skipped:
            for group in self._adamw.param_groups:
                group["lr"] = lr
            self._adamw.step()
            self._write_back()
        self._adamw.zero_grad(set_to_none=False)
        return {"optim/lr": lr, "optim/grad_norm": norm, "optim/skipped": float(skipped)}

    def release(self) -> None:
        """Let go of the module, so that another optimizer can take it."""
        for hook in self._hooks:
            hook.remove()
        for parameter in self._parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, object]:
        """Masters by name, and AdamW's own state: all that a resumed run needs."""
        masters = {name: master.detach() for name, master in zip(self.names, self.masters, strict=True)}
        return {"masters": masters, "adamw": self._adamw.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over masters and moments; weight decay, betas and eps stay those of this optimizer's config.

        Raises KeyError, ValueError or RuntimeError if the state is of another model.
        """
        for name, master in zip(self.names, self.masters, strict=True):
            master.copy_(state["masters"][name])
        pairs = zip(self._adamw.param_groups, state["adamw"]["param_groups"], strict=True)
        groups = [{**today, "params": saved["params"]} for today, saved in pairs]
        self._adamw.load_state_dict({"state": state["adamw"]["state"], "param_groups": groups})
        self._write_back()

    @torch.no_grad()
    def _write_back(self) -> None:
        for parameter, master in zip(self._parameters, self.masters, strict=True):
            if master is not parameter:
                for rounded, exact in zip(_pieces(parameter), _pieces(master), strict=True):
                    rounded.copy_(dithered(exact, self._threshold))


def dithered(exact: Tensor, threshold: Tensor) -> Tensor:
    """Round float32 numbers to bfloat16, each at its own threshold instead of at the half.

    The 16 bits that bfloat16 lacks, as a number in [0, 65536), plus the threshold: from 65536 on the result is the next
    number away from zero. What bfloat16 can represent stays as it is.
    """
    return ((exact.view(torch.int32) + threshold[: len(exact)]) >> 16).to(torch.int16).view(torch.bfloat16)


def _pieces(tensor: Tensor) -> tuple[Tensor, ...]:
    pieces: tuple[Tensor, ...] = tensor.view(-1).split(PIECE)
    return pieces


def _master(parameter: nn.Parameter) -> nn.Parameter:
    """The float32 master of a parameter: itself if it is float32 already."""
    return parameter if parameter.dtype == torch.float32 else nn.Parameter(parameter.detach().float())


def _moving_to(master: nn.Parameter) -> Callable[[Tensor], None]:
    """A hook that adds a parameter's fresh gradient to its master's and frees it."""

    def move(parameter: Tensor) -> None:
        assert parameter.grad is not None and master.grad is not None
        # In pieces, because PyTorch first makes a float32 copy of what it adds.
        for total, fresh in zip(_pieces(master.grad), _pieces(parameter.grad.contiguous()), strict=True):
            total.add_(fresh)
        parameter.grad = None

    return move
