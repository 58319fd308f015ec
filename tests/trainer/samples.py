"""Random samples of every awkward shape, and the slow way to their log-probabilities that the fast one must equal."""

import random
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from slimrl.models.forward.attention import ATTENTION
from slimrl.types import Metrics, Sample
from tests.tiny import tiny_module

VOCAB = 300
CPU = torch.device("cpu")


def policy_module(family: str, seed: int = 0) -> nn.Module:
    """A tiny model as slimrl runs it."""
    module = tiny_module(family, seed=seed)
    module.set_attn_implementation(ATTENTION)
    return module.eval()


def reference_module(family: str, seed: int = 0) -> nn.Module:
    """The same weights as transformers runs them by itself."""
    module = tiny_module(family, seed=seed)
    module.set_attn_implementation("eager")
    return module.eval()


def make_sample(rng: random.Random, prompt: Sequence[int], turns: Sequence[tuple[int, int]]) -> Sample:
    """A prompt and then turns of (trained tokens, tokens of the environment's answer)."""
    token_ids, mask = list(prompt), [False] * len(prompt)
    for num_trained, num_read in turns:
        token_ids += [rng.randrange(VOCAB) for _ in range(num_trained + num_read)]
        mask += [True] * num_trained + [False] * num_read
    num = len(token_ids)
    return Sample(
        token_ids_T=tuple(token_ids),
        loss_mask_T=tuple(mask),
        logprobs_T=tuple(-6 + rng.random() if trained else 0.0 for trained in mask),
        advantages_T=(rng.gauss(0, 1),) * num,
        version=-1,
    )


def branched(rng: random.Random, sample: Sample) -> Sample:
    """Another sample that begins as this one does: it leaves it somewhere, repeats it whole, or ends within it."""
    num = len(sample.token_ids_T)
    cut = rng.randrange(sample.loss_mask_T.index(True) + 1, num + 1)
    more = rng.choice([0, 1, 12])
    mask = (*sample.loss_mask_T[:cut], *(rng.random() < 0.7 for _ in range(more)))
    return Sample(
        token_ids_T=(*sample.token_ids_T[:cut], *(rng.randrange(VOCAB) for _ in range(more))),
        loss_mask_T=mask,
        logprobs_T=tuple(-6 + rng.random() if trained else 0.0 for trained in mask),
        advantages_T=(rng.gauss(0, 1),) * len(mask),
        version=-1,
    )


def random_samples(seed: int) -> list[Sample]:
    """Shuffled groups: shared and differing prompts, one and several turns, some of them shared too, one-token and long
    completions."""
    rng = random.Random(seed)
    samples = []
    for _ in range(3):
        prompts = [[rng.randrange(VOCAB) for _ in range(rng.choice([1, 5, 23]))] for _ in range(2)]
        prompts[1] = rng.choice([prompts[0], [*prompts[0][:-1], 7], prompts[1]])  # one prompt, almost one, or two
        for _ in range(rng.randrange(1, 4)):
            turns = [(rng.choice([1, 2, 9, 30]), rng.choice([0, 1, 6])) for _ in range(rng.choice([1, 1, 3]))]
            samples.append(make_sample(rng, rng.choice(prompts), turns))
        samples += [branched(rng, rng.choice(samples)) for _ in range(rng.randrange(4))]
    rng.shuffle(samples)
    return samples


def reference_logprobs(module: nn.Module, samples: Sequence[Sample], temperature: float = 1.0) -> list[Tensor]:
    """The trained tokens' log-probabilities, one forward of the whole model a sample, with a gradient."""
    logprobs = []
    for sample in samples:
        token_ids = torch.tensor([sample.token_ids_T])
        logits = module(input_ids=token_ids, use_cache=False).logits[0].float() / temperature
        all_T = logits[:-1].log_softmax(-1).gather(-1, token_ids[0, 1:, None])[:, 0]
        logprobs.append(all_T[torch.tensor(sample.loss_mask_T[1:])])
    return logprobs


def near_policy(samples: list[Sample], module: nn.Module, spread: float) -> list[Sample]:
    """The samples with log-probabilities near the module's own, so that clips and caps act on some tokens only."""
    generator = torch.Generator().manual_seed(0)
    moved = []
    for sample, logprob_N in zip(samples, reference_logprobs(module, samples), strict=True):
        values = iter((logprob_N.detach() + spread * torch.randn(len(logprob_N), generator=generator)).tolist())
        moved.append(
            replace(sample, logprobs_T=tuple(next(values) if trained else 0.0 for trained in sample.loss_mask_T))
        )
    return moved


class TakesGradients:
    """In the optimizer's place: keeps the gradients of the modules and changes nothing."""

    def __init__(self, *modules: nn.Module) -> None:
        self._modules = modules
        self.taken: list[dict[str, Tensor]] = []

    def step(self, lr_factor: float) -> Metrics:
        self.taken = [gradients(module) for module in self._modules]
        return {}


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Take the gradients out of the module."""
    found = {}
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        found[name] = parameter.grad
        parameter.grad = None
    return found


def assert_gradients_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor], rtol: float = 1e-4) -> None:
    """Equal to within `rtol` of the largest entry of each tensor."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        torch.testing.assert_close(ours[name], expected, rtol=0, atol=rtol * float(expected.abs().max()), msg=name)
