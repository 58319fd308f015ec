"""Every test of this directory needs a CUDA device, and skips itself where there is none."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.tiny import tiny_model_dir

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="there is no GPU"))


@pytest.fixture(autouse=True)
def exact_float32() -> Iterator[None]:
    """The numbers of a CPU are to compare with: products of float32 are not rounded to TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(scope="session")
def wide_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model whose heads are wide enough for a GPU's kernels."""
    return tiny_model_dir(tmp_path_factory.mktemp("wide"), "llama", head_dim=16)
