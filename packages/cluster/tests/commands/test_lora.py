"""An `rl` run with adapters, whose parts are processes: its samplers are sent the adapter alone."""

from pathlib import Path

import pytest

from packages.cluster.tests.commands.test_processes import Started, learned
from slimrl.models.adapter import is_adapter
from tests.commands.test_lora import LORA
from tests.commands.test_lora import finished as finished
from tests.commands.test_rl import rl_flags


@pytest.mark.nightly
def test_samplers_that_are_sent_the_adapter_alone_sample_the_same(
    finished: Path, tiny_dir: Path, tmp_path: Path
) -> None:
    output_dir = tmp_path / "run"
    apart = "--deployment.num_samplers", "2", "--ckpt.keep", "9"
    run = Started(rl_flags(tiny_dir, output_dir, *LORA, *apart), tmp_path / "log")
    sent = output_dir / "transport" / "weights"
    run.until(lambda: any(is_adapter(path) for path in sent.glob("step_*")))
    assert run.wait() == 0, run.said
    assert learned(output_dir) == learned(finished)
