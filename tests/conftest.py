"""What every test stands on: no screen, no network, no folder of the person who runs it, and no silent warning."""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import itertools
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import numpy  # noqa: F401
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from filelock import FileLock
from hypothesis.internal.conjecture import providers
from threadpoolctl import ThreadpoolController

from app.startup.garbage import collect_due
from native_kernels.cpu.runtime import jit

if TYPE_CHECKING:
    from engine.session.loaded_model import LoadedModel

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("PYTEST_QT_API", "pyside6")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of torch, and in processes that tests start
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

# A slow or busy machine fails no test: no example is too slow. Each run tries the same ones.
hypothesis.settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("steady")
# Nor does it read the constants of all our sources, which would change the examples and take each worker 4 s.
providers._get_local_constants = lambda: providers._local_constants

if sys.dont_write_bytecode:  # out of the source tree, but kept: rewriting all assertions takes each worker 15 s
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "d" / "bytecode")

BLAS = ThreadpoolController()  # NumPy's, which the import above has loaded
BLAS.limit(limits=1, user_api="blas")

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).resolve().parents[2] / "shared"


class _FromAnotherPlace(pytest.Dir):
    """A folder of tests in which each worker starts at another entry. The worker that reads a module first compiles it
    and rewrites its assertions, and the others read the result. Without bytecode, that takes 15 s for all modules.
    """

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        found = list(super().collect())
        start = len(found) * int(os.environ["PYTEST_XDIST_WORKER"][2:]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        return found[start:] + found[:start]


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return _FromAnotherPlace.from_parent(parent, path=path) if "PYTEST_XDIST_WORKER" in os.environ else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all workers the same order again."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.path.parts)


def pytest_collectstart() -> None:
    """Collect no garbage meanwhile: 1.5 s of 9."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the collected tests out of all later garbage collections: beside 15,000 of them a full one takes 0.8 s.

    From now on cycles are collected between two tests, as in the app on the main thread alone.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Let one thread multiply matrices again: loading a model sets the number. Threads of BLAS spin while they wait for
    each other. Beside other processes, two took 25 s of CPU time for the 7 s of `test_reference_data`.

    What is left behind a module, torch and Qt among it, is frozen, too.
    """
    collect_due()
    if not faulthandler.is_enabled():  # a test that closes the log of the app ends it for this process, too
        faulthandler.enable(item.config.stash[fault_handler_stderr_fd_key])
    if (nextitem is None or nextitem.path != item.path) and gc.get_count()[2] >= 4:
        gc.collect()
        gc.freeze()
    BLAS.limit(limits=1, user_api="blas")


def pytest_sessionfinish() -> None:
    """Clear the clipboard. Qt would delete data that Python made for it after the end of Python, and crash."""
    gui = sys.modules.get("PySide6.QtGui")
    if gui is not None and gui.QGuiApplication.instance() is not None:
        gui.QGuiApplication.clipboard().clear()


_numbers = itertools.count()


def _own_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """Make a folder. pytest's own way reads the names of all folders for each new one: 10 ms among ten thousand."""
    folder = factory.getbasetemp() / "each" / f"{next(_numbers)}-{name}"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _own_folder(tmp_path_factory, re.sub(r"\W", "_", request.node.name)[:16])


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has its own data, config and cache folders, so none reads or harms a person's."""
    home = _own_folder(tmp_path_factory, "home")
    folders = {
        "HOME": "",  # where other programs keep their models
        "USERPROFILE": "",
        "XDG_DATA_HOME": "data",
        "XDG_CONFIG_HOME": "config",
        "XDG_CACHE_HOME": "cache",
        "XDG_STATE_HOME": "state",
        "LOCALAPPDATA": "local",
        "APPDATA": "roaming",
        "WIN_PD_OVERRIDE_LOCAL_APPDATA": "local",  # Windows tells its folders itself, whatever the environment says
        "WIN_PD_OVERRIDE_APPDATA": "roaming",
    }
    for variable, name in folders.items():
        monkeypatch.setenv(variable, str(home / name))
    return home


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that this process shares with the workers beside it, until the run ends."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def kept_folder(request: pytest.FixtureRequest, whole_run: Path) -> Callable[[str, str], Path]:
    """Return a folder that lasts from run to run, by its name and the digest of what it is made of."""
    cache = getattr(request.config, "cache", None)

    def folder(name: str, digest: str) -> Path:
        if cache is None:  # -p no:cacheprovider
            return whole_run / name
        root = cache.mkdir(name)
        for other in root.iterdir():
            if other.name != digest[:24]:
                shutil.rmtree(other, ignore_errors=True)
        return root / digest[:24]

    return folder


def _digest_of_kernels() -> str:
    """Digest the kernels of tests and benchmarks. The product's kernels have a folder inside theirs for
    each state of their sources; compiling all of them takes 5 minutes of CPU time.
    """
    digest = hashlib.sha256()
    for folder in ("native_kernels", "benchmarks"):
        for source in sorted((Path(__file__).parent / folder).rglob("*.py")):
            if b"@kernel" in (content := source.read_bytes()):
                digest.update(source.name.encode() + b"\0" + content)
    return digest.hexdigest()


@pytest.fixture(scope="session", autouse=True)
def shared_kernels(kept_folder: Callable[[str, str], Path], whole_run: Path) -> Iterator[None]:
    """One folder for the machine code of all tests, of the workers beside this one and of the processes that tests
    start: it is compiled once. A folder that the environment names is used instead. Processes that tests start share
    bytecode, too, where the environment keeps it out of the source tree.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "HEARTH_KERNELS_CACHE" not in os.environ:
            patch.setenv("HEARTH_KERNELS_CACHE", str(kept_folder("kernels", _digest_of_kernels())))
        if "HEARTH_CUDA_CACHE" not in os.environ:
            patch.setenv("HEARTH_CUDA_CACHE", str(whole_run / "cubins"))
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):  # each process would compile our modules: 0.8 s
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(sys.pycache_prefix))
        patch.setattr(jit.Kernel, "_compile", partialmethod(_compile_once, jit.Kernel._compile, whole_run))
        yield


def _compile_once(one: jit.Kernel, compile: Callable[[jit.Kernel], None], whole_run: Path) -> None:
    """Compile the kernel, or wait for a worker that does. Workers that compiled the same ones took 8 s of CPU time."""
    with FileLock(whole_run / f"{one.name}.lock"):
        if not one._load():
            compile(one)


@pytest.fixture(scope="module")
def parked_threads() -> Iterator[None]:
    """Park the threads of the CPU kernels as soon as a program has ended. Tests compute in NumPy between two programs;
    threads that yield their CPUs for a millisecond meanwhile take them from the other test workers.
    """
    from native_kernels.cpu.runtime import pool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "IDLE_YIELDS", 0)
        yield


@pytest.fixture(scope="session", autouse=True)
def small_memory_readings() -> Iterator[None]:
    """The memory's speed is measured by a few reads of 16 MB. On a PC it is up to 4 GB for half a second, and no test
    asks how exact the figure is.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.machine.hardware.MOST_SAMPLE_BYTES", 16 << 20)
        patch.setattr("engine.machine.hardware.SAMPLE_S", 0.0)
        yield


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        # the oracle's own remarks, which it passes on only where the environment says CI, are none of the product's
        if not record.name.startswith("transformers"):
            self.records.append(record)


@pytest.fixture(autouse=True)
def quiet_log(request: pytest.FixtureRequest) -> Iterator[_Collector]:
    """A warning in the log that the test did not ask for fails it.

    A test that expects one marks itself: `@pytest.mark.expects_log("part of the message")`.
    """
    collector = _Collector()
    root = logging.getLogger()
    root.addHandler(collector)
    yield collector
    root.removeHandler(collector)
    expected = [text for mark in request.node.iter_markers("expects_log") for text in mark.args]
    said = [f"{record.levelname} {record.name}: {record.getMessage()}" for record in collector.records]
    surprising = [line for line in said if not any(text in line for text in expected)]
    missing = [text for text in expected if not any(text in line for line in said)]
    assert not surprising, f"unexpected warnings in the log: {surprising}"
    assert not missing, f"expected in the log and not found: {missing}; the log holds {said}"


@pytest.fixture(scope="session")
def shared_starter() -> Path:
    """The starter model's FP16 source, which lies beside the project on developers' machines."""
    path = SHARED / "models" / "starter-chat"
    if not (path / "model.safetensors").is_file():
        pytest.skip("the starter model's FP16 source is not beside this checkout")
    return path


@pytest.fixture(scope="session")
def starter() -> LoadedModel:
    """The starter model as it ships, loaded once for all tests."""
    from engine.session.loaded_model import LoadedModel

    return LoadedModel.load("starter-chat")


@pytest.fixture(scope="session")
def reference_starter() -> LoadedModel:
    """The same model computed by the reference: the oracle."""
    from engine.config import EngineConfig
    from engine.session.loaded_model import LoadedModel

    return LoadedModel.load("starter-chat", EngineConfig(backend="reference"))
