"""The cards that decode in tests: the one of NumPy everywhere, and this machine's own where there is one. And a machine
that nobody else uses."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from stand_in_card import StandInCard

from engine.placement import machine_figures
from native_kernels.cuda.card import Card
from native_kernels.cuda.runtime.driver import CudaError, CudaUnavailableError, Device, driver


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy it is: what is measured in a test is remembered there."""
    machine_figures.forget_hasty()
    monkeypatch.setattr(machine_figures, "processor_times", lambda: machine_figures.ProcessorTimes(0.0, 0.0, 0.0))


@pytest.fixture(scope="session")
def own_card() -> Iterator[Card]:
    """This machine's card, once for all tests; they are skipped with the reason where there is none."""
    from native_kernels.cuda.cuda_card import CudaCard

    try:
        if driver().n_devices == 0:
            pytest.skip("the NVIDIA driver sees no GPU")
        device = Device(0)
    except (CudaUnavailableError, CudaError) as error:
        pytest.skip(f"no GPU: {error}")
    card = CudaCard(device)
    yield card
    card.close()


@pytest.fixture(params=["stand-in", pytest.param("own", marks=pytest.mark.gpu)])
def any_card(request: pytest.FixtureRequest) -> Iterator[Card]:
    if request.param == "own":
        yield request.getfixturevalue("own_card")
        return
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # its thread and the one that waits for it take turns
    stand_in = StandInCard()
    yield stand_in
    stand_in.close()
    sys.setswitchinterval(interval)
