"""One training step on a batch of samples: pack, forward, loss, backward, guard, update.

The guard compares the trainer's log-probability of every token with the value that the sampler logged for the same
weights. If they differ by more than rounding errors, the sampled distribution is not the policy's, so the gradient is
wrong, and the run stops before the update. The run also stops if too many tokens have no finite log-probability. These
tokens are masked, so the guard alone would accept a policy that computes only nan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slimrl.config.train import GuardConfig, TrainerConfig
from slimrl.errors import UserError
from slimrl.models.allocator import return_freed_memory
from slimrl.models.device import to_device
from slimrl.trainer.aux_losses import AuxLoss
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.losses import TokenBatch, log_ratio, token_weights
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.own_loss import load_policy_loss
from slimrl.trainer.packing import Pack
from slimrl.trainer.parallel import ALONE, Ranks
from slimrl.trainer.token_log import TokenLog
from slimrl.transport.base import Batch
from slimrl.types import Metrics, Sample

# A few tokens may have no finite log-probability, for example because a mask on the vocabulary forbids them. But
# non-finite weights or activations affect all tokens of a sequence, or all tokens after the first affected token.
MAX_NONFINITE_SHARE = 0.05
# The names of the totals of a batch over all packs and processes, which are sums or maxima.
COUNTS = ("nonfinite", "tokens", "fresh_tokens", "row_tokens")
SUMS = ("loss", "entropy", "clipped", "gap_sum", "mismatch_kl", "fresh_kl", *COUNTS)
MAXIMA = ("gap_max", "ratio_max", "fresh_gap_max")


class StepRefusedError(UserError):
    """An error of the trainer, which refuses to update the weights with a batch. `metrics` are the batch's metrics, for
    the log."""

    def __init__(self, text: str, metrics: Metrics) -> None:
        super().__init__(text)
        self.metrics = metrics


@dataclass(frozen=True, slots=True)
class _SampleTensors:
    """Tensors (N,) with a value for each trained token of the batch, one sample after the other. The tokens of sample b
    start at index `offset_B[b]`. `is_fresh` is true for a token that was sampled from the present weights."""

    old: Tensor
    advantage: Tensor
    reward: Tensor
    weight: Tensor
    is_fresh: Tensor
    offset_B: Tensor


class TrainStep:
    """A function object that updates a module with a batch. Several `ranks` share the work, and each receives the same
    batches."""

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
        loss = config.loss.resolve()
        self._aggregation, self._policy_loss = loss.aggregation, load_policy_loss(loss)
        self._seq_len = seq_len
        self._aux_losses = aux_losses
        self._ranks = ranks
        self._device = next(module.parameters()).device
        if config.activation_checkpointing:
            return_freed_memory()  # otherwise the process would keep the memory that each layer frees

    @torch.inference_mode(False)  # an environment may have enabled inference mode or disabled gradients
    @torch.enable_grad()
    def __call__(self, batch: Batch, lr_factor: float, version: int, token_log: TokenLog | None = None) -> Metrics:
        """Update the weights with the batch, and return the metrics of the step. `version` is the version of the
        weights before the step. `token_log` receives the values of each token.

        Raises StepRefusedError, before the update, if the batch's log-probabilities cannot be trusted.
        """
        if not batch.samples:
            return {}
        tensors = self._tensors(batch.samples, version)
        # The packs' losses are weighted by the whole batch, so their gradients add up to the batch's gradient.
        packs = self._ranks.packs(batch.samples, self._config.micro_batch_tokens, self._device)
        found = [self._backward(pack, tensors, batch.temperature, token_log) for pack in packs]
        if token_log:
            token_log.gather(len(tensors.old), self._device)
        totals = _total(packs, found, self._ranks)
        metrics = _metrics(totals, batch.samples)
        for aux_loss in self._aux_losses:
            metrics |= aux_loss.metrics(self._ranks)
        if token_log:
            token_log.write(version, batch.samples)
        try:
            check_finite(metrics)
            check_agreement(totals, self._config.guard, metrics)
        except StepRefusedError:
            # The gradients are already computed. Drop them, so that a later step does not use them.
            self._optimizer.discard()
            raise
        return metrics | self._optimizer.step(lr_factor)

    def _tensors(self, samples: Sequence[Sample], version: int) -> _SampleTensors:
        lengths = [sum(sample.loss_mask_T) for sample in samples]
        weights = token_weights(lengths, self._aggregation, self._seq_len)
        offsets = [sum(lengths[:b]) for b in range(len(samples))]
        # Samples have values for all tokens, `_SampleTensors` only for trained tokens.
        trained = [[t for t, mask in enumerate(sample.loss_mask_T) if mask] for sample in samples]
        pairs = list(zip(samples, trained, strict=True))
        old = [sample.logprobs_T[t] for sample, ts in pairs for t in ts]
        advantage = [sample.advantages_T[t] for sample, ts in pairs for t in ts]
        reward = [sample.rewards_T[t] if sample.rewards_T else 0.0 for sample, ts in pairs for t in ts]
        weight = [w for w, length in zip(weights, lengths, strict=True) for _ in range(length)]

        fresh = [sample.version == version for sample, ts in pairs for _ in ts]

        columns = old, advantage, reward, weight
        old_N, advantage_N, reward_N, weight_N = (to_device(c, torch.float32, self._device) for c in columns)
        fresh_N, offset_B = to_device(fresh, torch.bool, self._device), to_device(offsets, torch.long, self._device)
        return _SampleTensors(old_N, advantage_N, reward_N, weight_N, fresh_N, offset_B)

    def _backward(
        self, pack: Pack, tensors: _SampleTensors, temperature: float, token_log: TokenLog | None
    ) -> dict[str, Tensor]:
        """Accumulate the gradient of one pack, and return the sums of the pack's metrics. A token without a finite
        log-probability is masked and counted."""
        new_N, entropy_N, hidden_ND = target_logprobs(
            self._module, pack, temperature, self._config.activation_checkpointing
        )
        sequence_N, place_N = _places(pack)
        index_N = tensors.offset_B[pack.sample_N] + place_N
        old_N = tensors.old[index_N]
        finite_N = torch.isfinite(new_N.detach()) & torch.isfinite(old_N)
        # Set masked values to 0 before the loss, because nan * 0 is nan. The loss of masked tokens is set to 0 below.
        new_N, old_N = torch.where(finite_N, new_N, 0.0), torch.where(finite_N, old_N, 0.0)
        tokens = TokenBatch(new_N, old_N, tensors.advantage[index_N], sequence_N)
        auxiliary_N = torch.zeros_like(old_N)
        for aux_loss in self._aux_losses:
            tokens, term_N = aux_loss(tokens, pack, hidden_ND, tensors.reward[index_N], temperature)
            auxiliary_N = auxiliary_N + term_N
        # After the auxiliary losses, because a value head changes the advantages that the policy loss reads.
        policy_N, clipped_N = self._policy_loss(tokens)
        loss_N = policy_N + auxiliary_N
        loss = torch.where(finite_N, loss_N * tensors.weight[index_N], 0.0).sum()
        loss.backward()
        if not len(new_N):  # an empty pack, added so that all processes have equally many packs
            return {}
        # The rest computes only metrics. The guard reads them.
        with torch.no_grad():
            gap_N = (tokens.new_N - tokens.old_N).abs()
            fresh_N = tensors.is_fresh[index_N]
            # Use float64: near 0 the terms of rho - log rho - 1 cancel.
            log_rho_N = log_ratio(tokens.new_N, tokens.old_N).double()
            kl_N = log_rho_N.expm1() - log_rho_N
            if token_log:
                found = log_rho_N, entropy_N, tokens.advantage_N
                token_log.add(index_N, *(torch.where(finite_N, values, torch.nan) for values in found))
            return {
                "loss": torch.where(finite_N, policy_N * tensors.weight[index_N], 0.0).sum(),
                "entropy": torch.where(finite_N, entropy_N, 0.0).sum(),
                "clipped": clipped_N.sum(),
                "nonfinite": (~finite_N).sum(),
                "gap_sum": gap_N.sum(),
                "gap_max": gap_N.max(),
                "mismatch_kl": kl_N.sum(),
                "ratio_max": log_rho_N.exp().max(),
                "fresh_gap_max": torch.where(fresh_N, gap_N, 0.0).max(),
                "fresh_kl": torch.where(fresh_N, kl_N, 0.0).sum(),
                "fresh_tokens": fresh_N.sum(),
            }


def _total(packs: Sequence[Pack], found: Sequence[Mapping[str, Tensor]], ranks: Ranks) -> dict[str, float]:
    """Return the totals over the packs of all processes. `found` has the values of each pack of this process. The
    totals are equal in all processes, so all processes accept or refuse the step together."""
    totals = dict.fromkeys((*SUMS, *MAXIMA), 0.0)
    pairs = [(pack, row) for pack, row in zip(packs, found, strict=True) if row]  # an empty pack has no numbers
    if pairs:
        # Read all numbers at once, because each read waits until a GPU has computed them.
        table = torch.stack([torch.stack([number.double() for number in row.values()]) for _, row in pairs])
        for name, column in zip(pairs[0][1], zip(*table.tolist(), strict=True), strict=True):
            totals[name] = max(column) if name in MAXIMA else sum(column)
        totals["tokens"] = float(sum(len(pack.source_N) for pack, _ in pairs))
        totals["row_tokens"] = float(sum(len(pack.token_ids_T) for pack, _ in pairs))
    sums, maxima = ranks.sums([totals[name] for name in SUMS]), ranks.maxima([totals[name] for name in MAXIMA])
    return dict(zip((*SUMS, *MAXIMA), (*sums, *maxima), strict=True))


def _places(pack: Pack) -> tuple[Tensor, Tensor]:
    """Return two tensors (N,) for the trained tokens of a pack: the index of the token's sample within the pack, and
    the token's index among the trained tokens of this sample."""
    # A sample's tokens are contiguous and in order. cummax copies the position of the sample's first token to the
    # others. `torch.unique` would wait for the GPU.
    first = torch.ones_like(pack.sample_N, dtype=torch.bool)
    first[1:] = pack.sample_N[1:] != pack.sample_N[:-1]
    position_N = torch.arange(len(first), device=first.device)
    start_N = torch.where(first, position_N, 0).cummax(0).values
    return first.cumsum(0) - 1, position_N - start_N


def _metrics(totals: Mapping[str, float], samples: Sequence[Sample]) -> Metrics:
    tokens = totals["tokens"]
    return {
        "loss/policy": totals["loss"],
        "loss/entropy": totals["entropy"] / max(1, tokens - totals["nonfinite"]),
        "loss/clipped": totals["clipped"] / tokens,
        "loss/ratio_max": totals["ratio_max"],
        "loss/nonfinite_tokens": totals["nonfinite"],
        "loss/tokens": tokens,
        "guard/max_logprob_gap": totals["gap_max"],
        "guard/mean_logprob_gap": totals["gap_sum"] / tokens,
        "guard/mismatch_kl": totals["mismatch_kl"] / tokens,
        "perf/unique_token_share": totals["row_tokens"] / sum(len(sample.token_ids_T) for sample in samples),
    }


def check_finite(metrics: Metrics) -> None:
    """Raise StepRefusedError if more than `MAX_NONFINITE_SHARE` of the trained tokens have no finite
    log-probability."""
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


def check_agreement(totals: Mapping[str, float], guard: GuardConfig, metrics: Metrics) -> None:
    """Raise StepRefusedError if the log-probabilities of sampler and trainer differ by more than the guard's bounds.
    Only tokens that were sampled from the present weights count, because others differ in any case."""
    kl = totals["fresh_kl"] / max(1.0, totals["fresh_tokens"])
    bounds = (
        ("guard/max_logprob_gap", totals["fresh_gap_max"], "max_logprob_gap", guard.max_logprob_gap),
        ("guard/mismatch_kl", kl, "max_mismatch_kl", guard.max_mismatch_kl),
    )
    for name, value, setting, bound in bounds:
        if value > bound:
            raise StepRefusedError(
                f"sampler and trainer disagree about tokens sampled from the same weights: {name} of these is "
                f"{value:.4g}, the bound is {bound:g}. The gradient would be of another distribution than the "
                "one sampled from, so the run stops before the update. Usual causes: the module changed while it was "
                "sampling (dropout, weights edited by hand), an architecture whose attention slimrl misreads, or too "
                "coarse a dtype: try `--model.dtype float32`. If the gap is expected, raise "
                f"`--trainer.guard.{setting}`.",
                metrics,
            )
