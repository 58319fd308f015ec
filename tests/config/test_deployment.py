"""Which placements a configuration may ask for."""

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError

ENV = ["--orchestrator.env.0.id", "reverse-text"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--deployment.type", "one-process", "--inference.backend", "vllm"], "samples in that process"),
        (["--deployment.type", "one-process", "--inference.base_url", "http://localhost:8000"], "in that process"),
        (["--deployment.type", "ray"], "deployment.type"),
        (["--deployment.type", "one-process", "--deployment.num_trainers", "2"], "no other parts"),
        (["--inference.base_url", "http://localhost:8000", "--warmup.max_steps", "3"], "may have other weights"),
        (["--inference.base_url", "http://10.0.0.7:8000", "--deployment.weights", "broadcast"], "on this host alone"),
        (["--deployment.num_trainers", "0"], "num_trainers"),
        (["--deployment.weights", "broadcast", "--deployment.sampler_restarts", "1"], "is not started again"),
        (["--inference.base_url", "http://localhost:1", "--inference_gpu_ids", "0"], "that it was started with"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_go_together_is_refused(argv, message):
    with pytest.raises(UserError, match=message):
        load(RLConfig, [*ENV, *argv], {})


def test_a_level_may_be_left_to_the_placement():
    assert load(RLConfig, ENV, {}).config.async_level == 0
    assert load(RLConfig, [*ENV, "--max_async_level", "3"], {}).config.async_level == 3
