"""One optimizer step on a batch of samples: pack, forward, loss, backward, update; and the guard.

The guard: the trainer recomputes the log-probability of every token that the sampler drew from the same weights. If the
two disagree beyond rounding, the gradient is not that of the distribution sampled from, and the run stops there. So it
does when tokens have no finite log-probability: these are masked, so a policy of NaNs would seem to agree.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from slimrl.config.train import GuardConfig, TrainerConfig
from slimrl.errors import UserError
from slimrl.trainer.aux_losses import AuxLoss, LossContext
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.losses import POLICY_LOSSES, TokenBatch, log_ratio, token_weights
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.packing import Pack
from slimrl.trainer.parallel import ALONE, Ranks
from slimrl.transport.base import Batch
from slimrl.types import Metrics, Sample

# A single odd token, such as one that a mask on the vocabulary forbids, may be left out even of a batch of a few dozen.
# Weights or activations that are not finite spoil whole sequences: all tokens, or all after the first that meets them.
MAX_NONFINITE_SHARE = 0.05


class StepRefusedError(UserError):
    """The batch must not become an update. `metrics` are what was found, for the log."""

    def __init__(self, text: str, metrics: Metrics) -> None:
        super().__init__(text)
        self.metrics = metrics


@dataclass(frozen=True, slots=True)
class _SampleTensors:
    """Per trained token of the whole batch, in sample order; `offset_B` is where sample b begins."""

    old: Tensor
    advantage: Tensor
    weight: Tensor
    offset_B: Tensor


@dataclass(slots=True)
class _Totals:
    """Sums and extremes over the trained tokens of a batch, gathered pack by pack."""

    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    nonfinite: float = 0.0
    gap_sum: float = 0.0
    gap_max: float = 0.0
    mismatch_kl: float = 0.0
    ratio_max: float = 0.0
    tokens: float = 0.0
    row_tokens: float = 0.0

    def over(self, ranks: Ranks) -> "_Totals":
        """Those of all processes together, so that they log, refuse and update alike."""
        mine = asdict(self)
        highest = {name: mine.pop(name) for name in ("gap_max", "ratio_max")}
        sums = zip(mine, ranks.sums([*mine.values()]), strict=True)
        maxima = zip(highest, ranks.maxima([*highest.values()]), strict=True)
        return _Totals(**dict(sums), **dict(maxima))


class TrainStep:
    """Applies batches to one module, alone or with others of `ranks` that are given the same batches."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: MasterAdamW,
        config: TrainerConfig,
        seq_len: int,
        aux_losses: Sequence[AuxLoss] = (),
        ranks: Ranks = ALONE,
    ) -> None:
        self._module = module
        self._optimizer = optimizer
        self._config = config
        self._loss = config.loss.resolve()
        self._seq_len = seq_len
        self._aux_losses = aux_losses
        self._ranks = ranks
        self._device = next(module.parameters()).device

    def __call__(self, batch: Batch, lr_factor: float, version: int) -> Metrics:
        """Update the weights with the batch and return what happened; `version` is that of the weights before.

        Raises StepRefusedError, before the update, when the batch's log-probabilities are not to be trusted.
        """
        if not batch.samples:
            return {}
        tensors = self._tensors(batch.samples)
        totals = _Totals()
        for pack in self._ranks.packs(batch.samples, self._config.micro_batch_tokens, self._device):
            self._backward(pack, tensors, batch.temperature, totals)
        metrics = _metrics(totals.over(self._ranks), batch.samples)
        for aux_loss in self._aux_losses:
            metrics |= aux_loss.metrics(self._ranks)
        try:
            check_finite(metrics)
            if all(sample.version == version for sample in batch.samples):
                check_agreement(metrics, self._config.guard)
        except StepRefusedError:
            self._optimizer.discard()
            raise
        return metrics | self._optimizer.step(lr_factor)

    def _tensors(self, samples: Sequence[Sample]) -> _SampleTensors:
        lengths = [sum(sample.loss_mask_T) for sample in samples]
        weights = token_weights(lengths, self._loss.aggregation, self._seq_len)
        trained = [[t for t, mask in enumerate(sample.loss_mask_T) if mask] for sample in samples]
        old = [sample.logprobs_T[t] for sample, ts in zip(samples, trained, strict=True) for t in ts]
        advantage = [sample.advantages_T[t] for sample, ts in zip(samples, trained, strict=True) for t in ts]
        weight = [w for w, length in zip(weights, lengths, strict=True) for _ in range(length)]
        offsets = [sum(lengths[:b]) for b in range(len(samples))]
        return _SampleTensors(*(torch.tensor(x, device=self._device) for x in (old, advantage, weight, offsets)))

    def _backward(self, pack: Pack, tensors: _SampleTensors, temperature: float, totals: _Totals) -> None:
        """Accumulate the gradient of one pack. A token whose log-probability is not finite is masked and counted."""
        new_N, entropy_N, hidden_ND = target_logprobs(self._module, pack, temperature)
        index_N = _token_index(pack, tensors.offset_B)
        old_N = tensors.old[index_N]
        finite_N = torch.isfinite(new_N.detach()) & torch.isfinite(old_N)
        new_N, old_N = torch.where(finite_N, new_N, 0.0), torch.where(finite_N, old_N, 0.0)
        tokens = TokenBatch(new_N, old_N, tensors.advantage[index_N], _sequence_numbers(pack))
        beside = torch.zeros_like(old_N)
        for aux_loss in self._aux_losses:
            tokens, term_N = aux_loss(LossContext(pack, hidden_ND, temperature), tokens)
            beside = beside + term_N
        policy_N, clipped_N = POLICY_LOSSES[self._loss.policy](tokens, self._loss)
        loss_N = policy_N + beside
        loss = torch.where(finite_N, loss_N * tensors.weight[index_N], 0.0).sum()
        loss.backward()
        with torch.no_grad():
            gap_N = (tokens.new_N - tokens.old_N).abs()
            # In float64, because near 0 the terms of rho - log rho - 1 cancel.
            log_rho_N = log_ratio(tokens.new_N, tokens.old_N).cpu().double()
            totals.loss += torch.where(finite_N, policy_N * tensors.weight[index_N], 0.0).sum().item()
            totals.entropy += entropy_N[finite_N].sum().item()
            totals.clipped += clipped_N.sum().item()
            totals.nonfinite += (~finite_N).sum().item()
            totals.gap_sum += gap_N.sum().item()
            totals.gap_max = max(totals.gap_max, gap_N.max().item())
            totals.mismatch_kl += (log_rho_N.expm1() - log_rho_N).sum().item()
            totals.ratio_max = max(totals.ratio_max, log_rho_N.exp().max().item())
            totals.tokens += len(new_N)
            totals.row_tokens += len(pack.token_ids_T)


def _token_index(pack: Pack, offset_B: Tensor) -> Tensor:
    """Where each of the pack's tokens stands in the batch's per-token tensors."""
    # A sample's tokens stand together and in order, so a token's place is its distance from the sample's first one.
    first = torch.cat([pack.sample_N.new_ones(1, dtype=torch.bool), pack.sample_N[1:] != pack.sample_N[:-1]])
    position_N = torch.arange(len(first), device=first.device)
    start_N = torch.where(first, position_N, 0).cummax(0).values
    return offset_B[pack.sample_N] + position_N - start_N


def _sequence_numbers(pack: Pack) -> Tensor:
    """The pack's samples numbered from 0, one number a token."""
    numbers: Tensor = torch.unique(pack.sample_N, return_inverse=True)[1]
    return numbers


def _metrics(totals: _Totals, samples: Sequence[Sample]) -> Metrics:
    return {
        "loss/policy": totals.loss,
        "loss/entropy": totals.entropy / max(1, totals.tokens - totals.nonfinite),
        "loss/clipped": totals.clipped / totals.tokens,
        "loss/ratio_max": totals.ratio_max,
        "loss/nonfinite_tokens": totals.nonfinite,
        "loss/tokens": totals.tokens,
        "guard/max_logprob_gap": totals.gap_max,
        "guard/mean_logprob_gap": totals.gap_sum / totals.tokens,
        "guard/mismatch_kl": totals.mismatch_kl / totals.tokens,
        "perf/unique_token_share": totals.row_tokens / sum(len(sample.token_ids_T) for sample in samples),
    }


def check_finite(metrics: Metrics) -> None:
    """Raise StepRefusedError when more than a small share of the trained tokens has no finite log-probability."""
    bad, tokens = metrics["loss/nonfinite_tokens"], metrics["loss/tokens"]
    if bad > MAX_NONFINITE_SHARE * tokens:
        raise StepRefusedError(
            f"{bad:.0f} of {tokens:.0f} trained tokens have no finite log-probability, and at most "
            f"{MAX_NONFINITE_SHARE:.0%} may be left out: the weights or what the model computes from them are NaN or "
            "infinite. The run stops before the update. Usual causes: steps that were too large (continue from the "
            "last checkpoint with `--resume` and a lower `--trainer.optim.lr`), or too coarse a dtype (begin anew with "
            "`--model.dtype float32`).",
            metrics,
        )


def check_agreement(metrics: Metrics, guard: GuardConfig) -> None:
    """Raise StepRefusedError when sampler and trainer disagree about fresh tokens by more than the guard allows."""
    bounds = (
        ("guard/max_logprob_gap", "max_logprob_gap", guard.max_logprob_gap),
        ("guard/mismatch_kl", "max_mismatch_kl", guard.max_mismatch_kl),
    )
    for name, setting, bound in bounds:
        if metrics[name] > bound:
            raise StepRefusedError(
                f"sampler and trainer disagree about tokens sampled from the same weights: {name} is "
                f"{metrics[name]:.4g}, the bound is {bound:g}. The gradient would be of another distribution than the "
                "one sampled from, so the run stops before the update. Usual causes: the module changed while it was "
                "sampling (dropout, weights edited by hand), an architecture whose attention slimrl misreads, or too "
                "coarse a dtype: try `--model.dtype float32`. If the gap is expected, raise "
                f"`--trainer.guard.{setting}`.",
                metrics,
            )
