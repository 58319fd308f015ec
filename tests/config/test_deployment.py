"""Which placements a configuration may ask for."""

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError

ENV = ["--orchestrator.env.0.id", "reverse-text"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--deployment.type", "one-process", "--inference.backend", "vllm"],
            'backend = "vllm" cannot act: deployment.type = "one-process" samples',
        ),
        (
            ["--deployment.type", "one-process", "--inference.base_url", "http://localhost:8000"],
            'base_url = "http://localhost:8000" cannot act: deployment.type',
        ),
        (["--deployment.type", "rays"], "deployment.type"),
        (["--deployment.type", "one-process", "--deployment.num_samplers", "2"], "no other parts"),
        (["--deployment.num_samplers", "0"], "num_samplers"),
        (["--deployment.restarts", "-1"], "restarts"),
        (["--deployment.address", "10.0.0.1:6379"], r'address = .* cannot act: it is for deployment.type "ray"'),
        (["--deployment.cpus", "2"], r'cpus = 2.0 cannot act: it is for deployment.type "ray"'),
        (["--deployment.type", "processes", "--deployment.cpus", "2"], "cpus = 2.0 cannot act"),
        (["--deployment.gpus_per_sampler", "2"], r'gpus_per_sampler = 2 cannot act: it is for deployment.type "ray"'),
        (["--deployment.type", "ray", "--deployment.gpus_per_sampler", "2"], "slimrl's own sampler has one GPU"),
        (
            ["--deployment.type", "ray", "--deployment.gpus_per_sampler", "2", "--inference.base_url", "http://a:1"],
            'gpus_per_sampler = 2 cannot act: the sampler at inference.base_url = "http://a:1" is one',
        ),
        (
            ["--deployment.type", "ray", "--inference_gpu_ids", "0"],
            r"inference_gpu_ids = \[0\] cannot act: .* each part has GPUs of its own",
        ),
        (
            ["--deployment.type", "ray", "--trainer_gpu_ids", "0,1"],
            r"trainer_gpu_ids = \[0, 1\] cannot act: .* each part has GPUs of its own",
        ),
        (
            ["--inference.base_url", "http://localhost:1", "--deployment.num_samplers", "2"],
            "num_samplers = 2 cannot act",
        ),
        (["--deployment.type", "one-process", "--deployment.num_trainers", "2"], "no other parts"),
        (["--inference.base_url", "http://localhost:8000", "--warmup.max_steps", "3"], "may have other weights"),
        (["--inference.base_url", "http://10.0.0.7:8000", "--deployment.weights", "broadcast"], "on this host alone"),
        (["--deployment.num_trainers", "0"], "num_trainers"),
        (["--inference.base_url", "http://localhost:1", "--inference_gpu_ids", "0"], "that it was started with"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_go_together_is_refused(argv, message):
    with pytest.raises(UserError, match=message):
        load(RLConfig, [*ENV, *argv], {})


def test_a_vllm_on_a_cluster_may_have_several_gpus():
    argv = ["--deployment.type", "ray", "--inference.backend", "vllm", "--deployment.gpus_per_sampler", "4"]
    assert load(RLConfig, [*ENV, *argv], {}).config.deployment.gpus_per_sampler == 4


@pytest.mark.parametrize(
    "argv",
    [
        ["--deployment.type", "ray", "--deployment.address", "local", "--deployment.cpus", "0.5"],
        ["--deployment.type", "ray", "--deployment.num_samplers", "4", "--deployment.num_trainers", "2"],
        ["--deployment.type", "ray", "--deployment.weights", "broadcast", "--deployment.restarts", "0"],
        ["--deployment.weights", "broadcast", "--deployment.restarts", "9"],
    ],
    ids=" ".join,
)
def test_what_goes_together_is_read(argv):
    deployment = load(RLConfig, [*ENV, *argv], {}).config.deployment
    for flag, value in zip(argv[::2], argv[1::2], strict=True):
        assert str(vars(deployment)[flag.removeprefix("--deployment.")]) == value


def test_the_old_name_of_restarts_is_read_with_a_note():
    notes: list[str] = []
    argv = [*ENV, "--deployment.sampler_restarts", "7"]
    assert load(RLConfig, argv, {}, note=notes.append).config.deployment.restarts == 7
    assert notes == ["old names that still read; write --deployment.restarts for --deployment.sampler_restarts"]


def test_a_level_may_be_left_to_the_placement():
    assert load(RLConfig, ENV, {}).config.async_level == 0
    assert load(RLConfig, [*ENV, "--max_async_level", "3"], {}).config.async_level == 3
