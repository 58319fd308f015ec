"""Made-up batches."""

from slimrl.config.data import FakeDataConfig
from slimrl.trainer.fake import fake_batch

CONFIG = FakeDataConfig(batch_size=6, rollouts_per_example=3, prompt_len=5, completion_len=4)


def test_a_batch_is_a_function_of_seed_and_step():
    batch = fake_batch(CONFIG, 300, 1, 1)
    assert fake_batch(CONFIG, 300, 1, 1) == batch
    assert all(fake_batch(CONFIG, 300, *other).samples != batch.samples for other in ((1, 2), (2, 1)))


def test_groups_share_their_prompt_and_every_length_is_as_configured():
    samples = fake_batch(CONFIG, 300, 0, 0).samples
    assert len(samples) == 6
    for group in (samples[:3], samples[3:]):
        assert len({sample.token_ids_T[:5] for sample in group}) == 1
        assert len({sample.token_ids_T for sample in group}) == 3
    for sample in samples:
        assert sample.loss_mask_T == (False,) * 5 + (True,) * 4
        assert all(0 <= token < 300 for token in sample.token_ids_T)
