"""Two real processes that share every batch do what one does with all of it."""

import pytest
import torch

from slimrl.trainer.parallel import ALONE, Ranks, divide
from tests.ranks import run_all
from tests.trainer.rank_steps import LOSSES, Found, steps
from tests.trainer.samples import CPU, assert_gradients_equal, random_samples


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Found, Found]:
    """What one process finds, and what each of two."""
    directory = tmp_path_factory.mktemp("ranks")
    outputs = [directory / f"{rank}.pt" for rank in range(2)]
    worker = ["-m", "tests.trainer.rank_steps"]
    run_all([[*worker, str(rank), "2", str(directory / "store"), str(path)] for rank, path in enumerate(outputs)])
    first, second = (torch.load(path, weights_only=True) for path in outputs)
    return steps(ALONE), first, second


@pytest.mark.slow  # starts two processes
@pytest.mark.parametrize("loss", LOSSES)
def test_two_processes_find_the_gradient_and_the_metrics_of_one(loss: str, found: tuple[Found, Found, Found]) -> None:
    (gradient, metrics), *shared = (part[loss] for part in found)
    for gradient_of_two, metrics_of_two in shared:
        assert_gradients_equal(gradient_of_two, gradient, rtol=2e-4)
        tokens = {name: metrics_of_two.pop(name) for name in metrics if name.startswith("token ")}
        assert tokens == pytest.approx({name: metrics[name] for name in tokens}, rel=2e-3)  # they are kept in 16 bits
        assert metrics_of_two == pytest.approx(
            {n: v for n, v in metrics.items() if n not in tokens}, rel=1e-4, abs=1e-6
        )


@pytest.mark.slow  # starts two processes
@pytest.mark.parametrize("loss", LOSSES)
def test_both_processes_make_the_same_update_to_the_last_bit(loss: str, found: tuple[Found, Found, Found]) -> None:
    (gradient, metrics), (other, other_metrics) = (part[loss] for part in found[1:])
    assert metrics == other_metrics
    assert all(torch.equal(gradient[name], other[name]) for name in gradient)


@pytest.mark.parametrize("max_tokens", [1, 60, 10_000])
@pytest.mark.parametrize("num", [1, 2, 3])
def test_every_sample_is_in_one_process_and_none_stands_idle(num: int, max_tokens: int) -> None:
    samples = random_samples(4)
    shares = [Ranks(rank, num).packs(samples, max_tokens, CPU) for rank in range(num)]
    assert all(shares)
    owners = [sorted({int(b) for pack in share for b in pack.sample_N}) for share in shares]
    assert sorted(b for mine in owners for b in mine) == list(range(len(samples)))


def test_shares_have_about_the_same_size() -> None:
    sizes = [5, 1, 4, 2, 3]
    assert [sum(sizes[index] for index in part) for part in divide(sizes, 2)] == [8, 7]
    assert divide(sizes, 1) == [[0, 1, 2, 3, 4]]
    assert divide([7], 3) == [[0], [], []]
