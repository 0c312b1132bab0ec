"""The pretend device itself: it computes what the CPU does, and refuses what CUDA refuses."""

import numpy as np
import pytest
import torch
from pretend_device import backend, memory, waits
from pretend_device.tensors import PretendTensor


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


MIXED = {
    "a sum": lambda ours, host: ours + host,
    "a sum the other way round": lambda ours, host: host + ours,
    "a product": lambda ours, host: ours @ host.T,
    "a row": lambda ours, host: torch.cat([ours, host]),
    "a choice": lambda ours, host: torch.where(ours > 0, ours, host),
    "in place": lambda ours, host: ours.add_(host),
    "in place on the host": lambda ours, host: host.add_(ours),
    "a number of the device in place on the host": lambda ours, host: host.add_(ours.sum()),
    "a result on the host": lambda ours, host: torch.sum(ours, dim=0, out=host[0]),
    "places on the host": lambda ours, host: ours.gather(1, torch.zeros(3, 1, dtype=torch.long)),
    "the host indexed from the device": lambda ours, host: host[ours[:, 0] > 0],
    "a layer": lambda ours, host: torch.nn.functional.linear(ours, host),
    "places of a table on the host": lambda ours, host: torch.nn.functional.embedding(
        torch.tensor([0]), ours
    ),
    "a mask": lambda ours, host: ours.masked_fill(host > 0, 0.0),
    "written into places": lambda ours, host: ours.index_put_((torch.tensor([0, 1]),), host[:2]),
}


@pytest.mark.parametrize("mix", MIXED.values(), ids=MIXED)
def test_two_devices_in_one_operation_are_refused(device, mix):
    ours, host = numbers(3, 4).to(device), numbers(3, 4, seed=1)
    before = host.clone(), ours.cpu()
    with pytest.raises(RuntimeError, match=r"same device.* pretend:0 and cpu"):
        mix(ours, host)
    assert torch.equal(host, before[0]) and torch.equal(ours.cpu(), before[1])


def test_also_on_the_way_back(device):
    def spoilt(gradient):
        return gradient + torch.ones(gradient.shape)

    leaf = numbers(3).to(device).requires_grad_()
    product = leaf * 2
    product.register_hook(spoilt)
    with pytest.raises(RuntimeError, match=r"same device.* pretend:0 and cpu"):
        product.sum().backward()


def test_numbers_and_copies_go_between_the_devices(device):
    host = numbers(3, 4)
    ours = host.to(device)
    assert ours.device.type == "pretend" and torch.equal((ours + torch.tensor(2.0)).cpu(), host + 2)
    assert torch.equal((ours * 3)[torch.tensor([2, 0])].cpu(), (host * 3)[[2, 0]])
    ours[1] = host[0]
    ours[2, 1] = 7
    assert torch.equal(ours[1].cpu(), host[0]) and ours[2, 1].item() == 7
    back = torch.empty(3, 4)
    back[:2] = ours[:2]
    assert torch.equal(back[:2], ours[:2].cpu()) and type(back) is torch.Tensor


def test_numpy_gets_nothing_from_the_device(device):
    ours = numbers(3).to(device)
    for read in (
        lambda: ours.numpy(),
        lambda: np.asarray(ours),
        lambda: np.array([ours]),
        lambda: np.exp(ours),
    ):
        with pytest.raises(TypeError, match="can't convert pretend:0 device type tensor to numpy"):
            read()
    assert isinstance(ours.cpu().numpy(), np.ndarray)


def test_a_generator_is_of_the_device_that_it_fills(device):
    generator = torch.Generator().manual_seed(0)
    for draw in (
        lambda: torch.rand(3, generator=generator, device=device),
        lambda: torch.randint(9, (3,), generator=generator, device=device),
        lambda: torch.zeros(3, device=device).normal_(generator=generator),
        lambda: torch.randperm(3, generator=generator, device=device),
    ):
        with pytest.raises(
            RuntimeError, match="Expected a 'pretend' device type for generator but found 'cpu'"
        ):
            draw()
    assert torch.rand(3, generator=generator).shape == (3,) and torch.rand(3, device=device).shape == (3,)


def test_products_of_whole_numbers_are_refused(device):
    whole = torch.arange(4, device=device).view(2, 2)
    with pytest.raises(RuntimeError, match='"mm_cuda" not implemented for torch.int64'):
        whole @ whole
    assert (torch.arange(4).view(2, 2) @ torch.arange(4).view(2, 2)).tolist() == [[2, 3], [6, 11]]


def test_a_model_moves_as_a_whole_and_learns_there(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    inputs = numbers(5, 4)

    def gradient(to):
        model.zero_grad()
        (model(inputs.to(to)) ** 2).sum().backward()
        return model[0].weight.grad.cpu().clone()

    expected = gradient("cpu")
    model.to(device)
    assert isinstance(model[0].weight, PretendTensor) and isinstance(model[0].weight, torch.nn.Parameter)
    assert model[0].weight is model[1].weight and torch.equal(gradient(device), expected)


def test_its_memory_is_counted_by_storages_and_ends(device):
    before = memory.BYTES.now
    whole = torch.zeros(1000, device=device)
    parts = whole[:500], whole.view(10, 100)
    assert memory.BYTES.now == before + 4000
    del whole
    assert memory.BYTES.now == before + 4000
    del parts
    assert memory.BYTES.now == before
    with backend.active(before + 4000), pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        kept = [torch.zeros(600, device=device) for _ in range(2)]
        del kept


WAITING = {
    "number": lambda ours: ours.sum().item(),
    "tolist": lambda ours: ours.tolist(),
    "copy to host": lambda ours: ours.cpu(),
    "nonzero": lambda ours: torch.nonzero(ours),
    "mask as index": lambda ours: ours[ours > 0],
    "equal": lambda ours: torch.equal(ours, ours * 2),
    "bincount": lambda ours: torch.bincount((ours > 0).long()),
    "unique": lambda ours: torch.unique(ours),
    "linear algebra": lambda ours: torch.linalg.eigh(ours[:, None] * ours),
}


@pytest.mark.parametrize("kind", WAITING)
def test_what_the_host_waits_for_is_counted(device, kind):
    ours = numbers(6).to(device)
    with waits.counted() as found:
        WAITING[kind](ours)
    assert found.kinds == {kind: 1}
    with waits.forbidden(), pytest.raises(RuntimeError, match="when stream is capturing"):
        WAITING[kind](ours)


def test_a_truth_is_a_number_and_other_work_waits_for_nothing(device):
    ours = numbers(6, 6).to(device)
    with waits.counted() as found:
        softened = torch.where(ours > 0, ours @ ours, 0.0).softmax(dim=1)
        softened[:, ours[0].argmax()].add_(1)
        ours.masked_fill_(ours > 1, 0)
        ours[ours < -1] = 0
        torch.zeros_like(ours).scatter_add_(1, ours.argsort(dim=1), ours).cumsum(dim=0)
        assert len(ours) == 6 and ours.shape[0] == 6
    assert found.kinds == {"number": 1}  # a place on the device that is used as an index
    with waits.counted() as found:
        if (ours > 0).any() and bool(ours.isfinite().all()):
            float(ours.max()), int(ours.argmax())
    assert found.kinds == {"number": 4} and found.count == 4


def test_copies_to_the_device_are_kept_apart_and_pinned_ones_wait_for_nobody(device):
    host = numbers(6)
    with waits.counted() as found:
        ours = host.to(device)
        ours.copy_(host)
        torch.tensor([1.0, 2.0], device=device)
        ours[torch.tensor([0, 1])].sum()
    assert (found.count, found.uploads) == (0, 4)
    pinned = host.pin_memory()
    assert pinned.is_pinned() and not host.is_pinned()
    with waits.counted() as found:
        pinned.to(device, non_blocking=True)
        ours.copy_(pinned, non_blocking=True)
        pinned.copy_(ours, non_blocking=True)
    assert not found.kinds
    with waits.counted() as found:
        host.copy_(ours, non_blocking=True)
    assert found.kinds == {"copy to host": 1}


def test_it_is_there_only_while_it_is_asked_for(gpu):
    from gprune.models import devices
    from gprune.models.loading import device_of

    assert devices.GPU == "cuda" and not torch.pretend.is_available()
    with backend.active():
        assert str(device_of("auto")) == "pretend" and devices.count() == 1
        assert device_of("cpu").type == "cpu" and devices.name("pretend:0") == "a pretend GPU"
    assert devices.GPU == "cuda" and not torch.pretend.is_available()
