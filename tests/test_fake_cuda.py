"""The fake GPU finds what it is there to find: mixed devices, waiting, and shapes that depend on numbers."""

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorDeviceMismatchError

from slimrl.models.device import to_device
from slimrl.trainer.aux_losses import gae, value_loss
from tests.fake_cuda import CUDA, fake_cuda

CPU = torch.device("cpu")


def test_a_mix_of_devices_is_refused():
    with fake_cuda(), pytest.raises(FakeTensorDeviceMismatchError, match="cuda:0 and cpu"):
        value_loss(torch.ones(3, device=CUDA), torch.ones(3))


def test_a_shape_that_depends_on_numbers_is_refused():
    with fake_cuda():
        x = torch.ones(3, device=CUDA)
        for look in (lambda: x[x > 0], lambda: x.nonzero(), lambda: torch.unique(x)):
            with pytest.raises(DynamicOutputShapeException):
                look()


def test_each_reading_is_recorded_once_and_none_on_a_cpu():
    with fake_cuda() as waits:
        for device, readings in ((CUDA, 3), (CPU, 0)):
            waits.places.clear()
            gae(*(torch.zeros(4, device=device) for _ in range(3)), gamma=1.0, gae_lambda=1.0)
            assert waits.places == ["trainer/aux_losses.py gae"] * readings


def test_a_copy_from_memory_that_is_not_pinned_is_recorded(monkeypatch):
    with fake_cuda() as waits:
        assert to_device([1, 2, 3], torch.long, CUDA).device == CUDA
        assert not waits.places
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
        to_device([1, 2, 3], torch.long, CUDA)
        assert waits.places == ["models/device.py to_device"]


def test_a_backward_pass_has_gradients_on_the_gpu():
    with fake_cuda():
        x = torch.ones(3, device=CUDA, requires_grad=True)
        value_loss(x, torch.zeros_like(x)).sum().backward()
        assert x.grad is not None and x.grad.device == CUDA and x.grad.shape == (3,)
