"""The LM head in chunks: the same numbers as all at once, at any temperature."""

import pytest
import torch

from slimrl.trainer import logprobs
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.packing import pack_samples
from tests.trainer.samples import (
    CPU,
    assert_gradients_equal,
    gradients,
    policy_module,
    random_samples,
    reference_logprobs,
    reference_module,
)


def one_pack(seed: int = 0):
    (pack,) = pack_samples(random_samples(seed), 10_000, CPU)
    return pack


def test_chunking_changes_neither_values_nor_gradients(monkeypatch):
    module, pack = policy_module("llama"), one_pack()

    def computed():
        logprob_N, entropy_N, _ = target_logprobs(module, pack, temperature=0.7)
        logprob_N.square().sum().backward()
        return logprob_N.detach(), entropy_N, gradients(module)

    whole_logprob, whole_entropy, whole_gradients = computed()
    monkeypatch.setattr(logprobs, "CHUNK", 7)
    monkeypatch.setattr(logprobs, "BLOCK", 2 * 300)  # two rows of the vocabulary
    assert len(pack.target_N) > 3 * 7
    chunked_logprob, chunked_entropy, chunked_gradients = computed()
    torch.testing.assert_close(chunked_logprob, whole_logprob, rtol=0, atol=1e-5)
    torch.testing.assert_close(chunked_entropy, whole_entropy, rtol=0, atol=1e-5)
    assert_gradients_equal(chunked_gradients, whole_gradients)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_divides_the_logits(temperature):
    samples = random_samples(1)
    (pack,) = pack_samples(samples, 10_000, CPU)
    logprob_N, *_ = target_logprobs(policy_module("qwen3"), pack, temperature)
    expected = reference_logprobs(reference_module("qwen3"), samples, temperature)
    torch.testing.assert_close(
        logprob_N, torch.cat([expected[b] for b in dict.fromkeys(pack.sample_N.tolist())]), rtol=0, atol=5e-5
    )


def test_entropy_is_that_of_the_whole_distribution_and_carries_no_gradient():
    module, pack = policy_module("llama"), one_pack()
    with torch.no_grad():
        module.get_output_embeddings().weight.zero_()
    _, entropy_N, _ = target_logprobs(module, pack, temperature=1.0)
    torch.testing.assert_close(entropy_N, torch.full_like(entropy_N, 300.0).log())
    assert not entropy_N.requires_grad


def test_logprobs_are_float32_in_a_bfloat16_module():
    module = policy_module("llama").to(torch.bfloat16)
    logprob_N, *_ = target_logprobs(module, one_pack(), temperature=1.0)
    assert logprob_N.dtype == torch.float32
