"""Samples a token and its log-probability from logits, in one pass over the vocabulary.

Plain temperature sampling, which training needs, reads each logit once. It exponentiates the logits, sums them in
blocks, chooses a block by its probability mass, and chooses a token inside the block. This is the inverse CDF at one
uniform number per row. Plain sampling needs neither sorting nor a random number for each token of the vocabulary. Only
rows with top-k, top-p or min-p are sorted. Knows nothing of models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from slimrl.models.device import to_device
from slimrl.models.native import ops
from slimrl.types import SamplingParams

MIN_TEMPERATURE = 1e-20  # a smaller divisor would overflow; sampling is already greedy at this temperature
BLOCK = 256  # tokens in a block of the vocabulary

Top = tuple[tuple[int, float], ...]  # the likeliest tokens with their log-probabilities, the likeliest first


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """The log-probability of a given token, its rank (1 is the likeliest), and the likeliest tokens at its position."""

    logprob: float
    rank: int
    top: Top


def sample_tokens(
    logits_BV: Tensor, params_B: Sequence[SamplingParams], uniform_B: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Draw one token per row. Return the tokens, and their log-probabilities under the distributions that they were
    drawn from.

    `uniform_B`, one number in [0, 1) per row, decides the draw: the same number and logits give the same token. Rows
    with temperature 0 take the largest logit and report its log-probability at temperature 1.
    """
    device = logits_BV.device
    uniform = to_device(uniform_B, torch.float64, device)
    if ops.available(logits_BV) and not any(_truncates(p) for p in params_B):
        temperature_B = torch.tensor([_temperature(p) for p in params_B], dtype=torch.float32)
        token_B, logprob_B = ops.sample(logits_BV.contiguous(), temperature_B, uniform)
        return token_B.tolist(), logprob_B.tolist()
    scaled_BV, mass_BV = _masses(logits_BV, params_B)
    total_B, token_B = _inverse_cdf(mass_BV, uniform)
    # Replace the tokens of greedy rows: they were drawn at temperature 1, together with the other rows.
    greedy = [p.temperature == 0.0 for p in params_B]
    if any(greedy):
        greedy_B = to_device(greedy, torch.bool, device)
        token_B = torch.where(greedy_B, scaled_BV.argmax(-1), token_B)
    logprob_B = scaled_BV.gather(-1, token_B[:, None])[:, 0] - total_B.log()
    # Copy both in one tensor, because each copy from a GPU waits. float64 represents all token ids and float32 numbers.
    tokens, logprobs = torch.stack([token_B.double(), logprob_B.double()]).tolist()
    return [int(token) for token in tokens], logprobs


def top_tokens(logits_BV: Tensor, params_B: Sequence[SamplingParams], num: int) -> list[Top]:
    """Return the `num` likeliest tokens per row under the distribution of `sample_tokens`. Return fewer if truncation
    leaves fewer tokens."""
    scaled_BV, mass_BV = _masses(logits_BV, params_B)
    masses_BK, ids_BK = mass_BV.topk(min(num, mass_BV.shape[1]), dim=-1)
    logprobs_BK = scaled_BV.gather(-1, ids_BK) - mass_BV.sum(-1, dtype=torch.float64).log().float()[:, None]
    columns = torch.stack([ids_BK.double(), logprobs_BK.double(), (masses_BK > 0).double()], dim=-1)
    return [tuple((int(token), logprob) for token, logprob, kept in row if kept) for row in columns.tolist()]


def score_tokens(logits_NV: Tensor, tokens_N: Tensor, num: int) -> list[ScoredToken]:
    """Return the scores of given tokens under the plain softmax, each with the `num` likeliest tokens at its
    position."""
    logprobs_NV = logits_NV.float().log_softmax(-1)
    own_N1 = logprobs_NV.gather(-1, tokens_N[:, None])
    rank_N = (logprobs_NV > own_N1).sum(-1) + 1
    top_NK, ids_NK = logprobs_NV.topk(min(num, logprobs_NV.shape[1]), dim=-1)
    rows = zip(own_N1[:, 0].tolist(), rank_N.tolist(), ids_NK.tolist(), top_NK.tolist(), strict=True)
    return [ScoredToken(own, rank, tuple(zip(ids, top, strict=True))) for own, rank, ids, top in rows]


def _masses(logits_BV: Tensor, params_B: Sequence[SamplingParams]) -> tuple[Tensor, Tensor]:
    """Return two tensors (B, V): the logits, divided by the temperature and shifted to maximum 0, and the probability
    masses of the tokens. Masses are truncated, but not normalised."""
    scaled_BV = logits_BV.float()
    if any(p.temperature not in (0.0, 1.0) for p in params_B):
        temperature_B = to_device([_temperature(p) or 1.0 for p in params_B], torch.float32, logits_BV.device)
        scaled_BV = scaled_BV / temperature_B[:, None]
    # With maximum 0 the exponentials cannot overflow, and the largest is 1.
    scaled_BV = scaled_BV - scaled_BV.amax(-1, keepdim=True)
    mass_BV = scaled_BV.exp()
    truncated = [row for row, p in enumerate(params_B) if p.temperature > 0 and _truncates(p)]
    if truncated:
        rows = to_device(truncated, torch.long, logits_BV.device)
        mass_BV[rows] = _truncate(mass_BV[rows], [params_B[row] for row in truncated])
    return scaled_BV, mass_BV


def _temperature(params: SamplingParams) -> float:
    """Return the temperature, but at least `MIN_TEMPERATURE`, so that divided logits do not overflow; 0 for greedy
    sampling."""
    return max(params.temperature, MIN_TEMPERATURE) if params.temperature else 0.0


def _truncates(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _truncate(mass_BV: Tensor, params_B: Sequence[SamplingParams]) -> Tensor:
    """Return the truncated mass (B, V). A token gets 0 outside top-k, outside top-p of the tokens in top-k, or with
    less mass than min-p times the largest mass."""
    device, V = mass_BV.device, mass_BV.shape[1]
    top_k = to_device([p.top_k or V for p in params_B], torch.long, device)[:, None]
    top_p = to_device([p.top_p for p in params_B], torch.float32, device)[:, None]
    min_p = to_device([p.min_p for p in params_B], torch.float32, device)[:, None]
    sorted_BV, order_BV = mass_BV.sort(dim=-1, descending=True, stable=True)
    keep_BV = torch.arange(V, device=device)[None] < top_k
    kept_BV = sorted_BV * keep_BV
    # A token belongs to top-p if the mass before it has not reached p yet, so the first token always belongs to it.
    before_BV = kept_BV.cumsum(-1) - kept_BV
    # `top_p` 1 must keep everything, even if rounding makes the cumulative sum reach the total early.
    keep_BV &= (before_BV < top_p * kept_BV.sum(-1, keepdim=True)) | (top_p >= 1.0)
    keep_BV &= sorted_BV >= min_p * sorted_BV[:, :1]
    keep_BV[:, 0] = True  # a `top_p` below 1e-45 is 0 in float32, and would drop all tokens
    # Restore the order of token ids.
    return torch.zeros_like(mass_BV).scatter_(-1, order_BV, sorted_BV * keep_BV)


def _inverse_cdf(mass_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the total mass and the drawn token of each row. A token without mass is never drawn, even if sums are
    rounded."""
    B, V = mass_BV.shape
    if V % BLOCK:
        mass_BV = F.pad(mass_BV, (0, BLOCK - V % BLOCK))
    blocks = mass_BV.view(B, -1, BLOCK)
    block_sum = blocks.sum(-1)
    # Sum blocks in float64: float32 could not separate tokens at the end of a long cumulative sum.
    block_cdf = block_sum.double().cumsum(-1)
    total_B = block_cdf[:, -1]
    target_B = uniform_B * total_B
    # First choose the block by the blocks' sums, then the token in this block by the remaining target mass.
    block_B = _first_above(block_cdf, block_sum, target_B)
    rows = torch.arange(B, device=mass_BV.device)
    inside = blocks[rows, block_B]
    start_B = block_cdf[rows, block_B] - block_sum[rows, block_B].double()
    offset_B = _first_above(inside.double().cumsum(-1), inside, target_B - start_B)
    return total_B.float(), block_B * BLOCK + offset_B


def _first_above(cdf: Tensor, mass: Tensor, target_B: Tensor) -> Tensor:
    """Return the index of the first entry whose cumulative mass exceeds the target. If rounding leads to an entry
    without mass, return the heaviest entry."""
    # Counting the entries up to the target handles all rows at once. The clamp is for a target equal to the total.
    index_B = (cdf <= target_B[:, None]).sum(-1).clamp_max(cdf.shape[-1] - 1)
    hit_B = mass.gather(-1, index_B[:, None])[:, 0] > 0
    return torch.where(hit_B, index_B, mass.argmax(-1))
