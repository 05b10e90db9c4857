"""The hardware probe on recorded machines: every GPU is named, and every reason against one is in words."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded_machine import NAMES, RecordedMachine
from support.shown_text import numbers_in
from support.systems import ON_WINDOWS

from engine.errors import ArtifactMismatchError, EngineError, InvalidRequestError
from engine.machine import hardware
from engine.machine.cpu_and_ram import lies_in_ram, process_ram_bytes, read_cpu, return_freed_ram
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import (
    CpuInfo,
    HardwareProfile,
    RamInfo,
    choose_gpu,
    choose_threads,
    default_threads,
    describe,
    measure,
    probe,
    with_library,
)

THIN = "\u202f"


@pytest.fixture
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> RecordedMachine:
    return RecordedMachine(request.param, tmp_path / "root")


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("machine", [name], indirect=True, ids=[name])


every_machine = pytest.mark.parametrize("machine", NAMES, indirect=True)


# --- GPUs


@of("rtx_4090")
def test_desktop_with_one_gpu(machine: RecordedMachine) -> None:
    profile = probe(**machine.keywords())
    assert [gpu.name for gpu in profile.gpus] == ["GeForce RTX 4090", "AMD graphics"]
    gpu = profile.gpus[0]
    assert (gpu.index, gpu.compute_capability, gpu.driver) == (0, "8.9", "550.120")
    assert (gpu.total_bytes, gpu.free_bytes) == (24564 << 20, (24564 - 1219) << 20)
    assert (gpu.usable, gpu.reasons) == (True, ())
    assert (gpu.context_bytes, gpu.bytes_per_s, gpu.pcie_bytes_per_s, profile.sync_s) == (None,) * 4
    assert profile.gpu_reasons == ()
    assert profile.cpu == CpuInfo(
        "AMD Ryzen 9 7950X", cores=16, threads=32, isa=("avx2", "f16c", "fma", "avx512f", "avx512_vnni")
    )
    assert describe(profile) == f"GeForce RTX 4090, 24{THIN}GB · 64{THIN}GB RAM · 16 cores"
    assert machine.nvml.open == 0, "NVML was left open"


@of("rtx_2080_ti")
def test_oldest_supported_gpu_and_driver(machine: RecordedMachine) -> None:
    profile = probe(**machine.keywords())
    assert [(gpu.name, gpu.usable, gpu.compute_capability) for gpu in profile.gpus] == [
        ("GeForce RTX 2080 Ti", True, "7.5")
    ]
    assert describe(profile).startswith("GeForce RTX 2080 Ti")
    assert numbers_in(describe(profile)) == ["2080", "11 GB", "32 GB", "8"]


@of("laptop_hybrid")
def test_discrete_gpu_is_chosen_over_integrated_graphics(machine: RecordedMachine) -> None:
    profile = probe(**machine.keywords())
    gpu, why = choose_gpu(profile)
    assert gpu is not None
    assert gpu.name == "GeForce RTX 3060 Laptop GPU"
    assert [(gpu.name, gpu.index, gpu.usable, gpu.reasons) for gpu in profile.gpus[1:]] == [
        ("Intel graphics", None, False, ("no CUDA",))
    ]
    assert why.startswith("GeForce RTX 3060 Laptop GPU: ")
    assert numbers_in(why) == ["3060", "6.4 GB"]
    assert "Intel graphics" in why
    assert numbers_in(describe(profile)) == ["3060", "6 GB", "16 GB", "14"]


@of("laptop_hybrid")
def test_only_fast_cores_get_threads(machine: RecordedMachine) -> None:
    cpu = probe(**machine.keywords()).cpu
    assert (cpu.name, cpu.cores, cpu.threads, cpu.performance_cores) == ("12th Gen Intel Core i7-12700H", 14, 20, 6)
    assert default_threads(probe(**machine.keywords())) == 5


@of("laptop_hybrid")
def test_a_process_on_slow_cores_alone_uses_them(machine: RecordedMachine) -> None:
    profile = probe(**machine.keywords() | {"cpus": [12, 13, 14]})
    assert (profile.cpu.cores, profile.cpu.threads, profile.cpu.performance_cores) == (3, 3, None)
    assert default_threads(profile) == 2


@pytest.mark.parametrize(
    ("capacities", "fast"),
    [([414] * 4 + [1024] * 4, 4), ([290] * 4 + [780] * 3 + [1024], 4), ([1024] * 8, None), ([800, 1024] * 4, None)],
)
def test_arms_fast_cores_are_those_of_large_capacity(tmp_path: Path, capacities: list[int], fast: int | None) -> None:
    for number, capacity in enumerate(capacities):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{number}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology/thread_siblings_list").write_text(f"{number}\n", encoding="ascii")
        (folder / "cpu_capacity").write_text(f"{capacity}\n", encoding="ascii")
    cpu = read_cpu(None, tmp_path, range(8))
    assert (cpu.cores, cpu.threads, cpu.performance_cores) == (8, 8, fast)


REASONS = {
    "no_gpu": ("no NVIDIA driver is installed",),
    "integrated_only": ("no NVIDIA driver is installed", "Intel graphics: no CUDA"),
    "driver_not_loaded": ("the NVIDIA driver is installed but not loaded",),
    "driver_mismatch": ("the NVIDIA driver was updated while it ran: restart the computer",),
    "driver_fails_later": ("GeForce RTX 4090: the memory cannot be read: NVML says: Unknown Error",),
    "gtx_1060": ("GeForce GTX 1060 6GB: compute capability 6.1 is too old: 7.5 is needed",),
    "old_driver": ("GeForce RTX 2080 Ti: driver 470.256.02 is too old: 525 or newer is needed",),
    "small_gpu": ("GeForce MX450: 1.1 GB of memory is too little: 2 GB is needed",),
}


@pytest.mark.parametrize(("machine", "reasons"), REASONS.items(), indirect=["machine"], ids=list(REASONS))
def test_no_usable_gpu_is_an_answer_with_its_reasons(machine: RecordedMachine, reasons: tuple[str, ...]) -> None:
    profile = probe(**machine.keywords())
    assert profile.gpu_reasons == reasons
    assert not any(gpu.usable for gpu in profile.gpus)
    assert choose_gpu(profile) == (None, f"CPU only: {'; '.join(reasons)}.")
    start = "No usable GPU: runs on " if profile.gpus else "No GPU found: runs on "
    assert describe(profile).startswith(start)


@of("driver_not_loaded")
def test_a_gpu_without_its_driver_is_still_named(machine: RecordedMachine) -> None:
    assert [(gpu.name, gpu.reasons) for gpu in probe(**machine.keywords()).gpus] == [
        ("NVIDIA GPU", ("the NVIDIA driver is installed but not loaded",))
    ]


@of("two_gpus")
def test_most_free_memory_wins(machine: RecordedMachine) -> None:
    profile = probe(**machine.keywords())
    gpu, why = choose_gpu(profile)
    assert gpu is profile.gpus[1]
    assert why.startswith("GeForce RTX 4090: ")
    assert numbers_in(why) == ["4090", "25.3 GB", "2"]
    busy = replace(profile.gpus[1], free_bytes=1 << 30)
    gpu, why = choose_gpu(replace(profile, gpus=(profile.gpus[0], busy)))
    assert gpu is profile.gpus[0], "free memory decides, not the size of the GPU"


@of("two_gpus")
def test_one_gpu_fails_while_the_other_works(machine: RecordedMachine) -> None:
    machine.nvml.fail("nvmlDeviceGetHandleByIndex", 15, index=1)
    profile = probe(**machine.keywords())
    assert [gpu.usable for gpu in profile.gpus] == [True, False]
    assert (profile.gpus[1].name, profile.gpus[1].reasons) == (
        "NVIDIA GPU 1", ("the GPU was lost: restart the computer",)
    )  # fmt: skip
    assert profile.gpu_reasons == ()
    gpu, _ = choose_gpu(profile)
    assert gpu is profile.gpus[0]


CALLS = ["nvmlInit", "nvmlShutdown", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex",
         "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetCudaComputeCapability",
         "nvmlDeviceGetMemoryInfo"]  # fmt: skip


@pytest.mark.parametrize("code", [1, 3, 4, 9, 10, 12, 15, 16, 18, 999, 12345])
@of("two_gpus")
def test_any_call_may_fail_in_any_way(machine: RecordedMachine, code: int) -> None:
    for call in CALLS:
        machine.nvml.errors = {(call, None): code}
        profile = probe(**machine.keywords())
        assert call in machine.nvml.calls
        needed = call not in {"nvmlShutdown", "nvmlDeviceGetName", "nvmlDeviceGetUUID"}
        assert bool(profile.gpu_reasons) == needed, (call, profile.gpu_reasons)
        for gpu in profile.gpus:
            assert gpu.usable == (not gpu.reasons)
        assert HardwareProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


@of("rtx_4090")
def test_a_library_that_breaks_in_other_ways_is_an_answer_too(
    machine: RecordedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise OSError("libnvidia-ml.so.1: file too short")

    monkeypatch.setattr(machine.nvml, "nvmlInit", broken, raising=False)
    assert "file too short" in probe(**machine.keywords()).gpu_reasons[0]


def test_without_the_binding_the_reason_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert probe(root=tmp_path).gpu_reasons == ("the Python package nvidia-ml-py is missing",)


def test_old_bindings_answer_in_bytes(tmp_path: Path) -> None:
    machine = RecordedMachine("rtx_2080_ti", tmp_path)
    device = machine.nvml.answers["devices"][0]
    device["nvmlDeviceGetName"] = device["nvmlDeviceGetName"].encode()
    machine.nvml.answers["nvmlSystemGetDriverVersion"] = b"525.147.05"
    gpu = probe(**machine.keywords()).gpus[0]
    assert (gpu.name, gpu.driver, gpu.usable) == ("GeForce RTX 2080 Ti", "525.147.05", True)


@pytest.mark.parametrize(
    ("wanted", "visible"),
    [
        (None, [0, 1]),
        ("0,1", [0, 1]),
        ("1", [1]),
        (" 1 , 0", [0, 1]),
        ("", []),
        ("-1", []),
        ("1,-1,0", [1]),
        ("2", []),
        ("NoDevFiles", []),
        ("GPU-dddddddd", [0]),
        ("gpu-eeee", []),
        ("GPU-EEEEEEEE-1111-4222-8333-eeeeeeeeeeee", [1]),
        ("MIG-11111111-2222-3333-4444-555555555555", []),
    ],
)
@of("two_gpus")
def test_cuda_visible_devices(machine: RecordedMachine, wanted: str | None, visible: list[int]) -> None:
    if wanted is not None:
        machine.environment["CUDA_VISIBLE_DEVICES"] = wanted
    profile = probe(**machine.keywords())
    assert [gpu.index for gpu in profile.gpus if gpu.usable] == visible
    hidden = {gpu.reasons for gpu in profile.gpus if not gpu.usable}
    assert hidden <= {("hidden by CUDA_VISIBLE_DEVICES",)}
    assert bool(profile.gpu_reasons) == (not visible)


@of("no_gpu")
def test_adapters_of_other_makers_sockets_and_sound_are_no_gpus(machine: RecordedMachine) -> None:
    for gpu, vendor, kind in [(0, "0x1a03", "0x030000"), (1, "0x8086", "0x040300"), (2, "0x1002", "0x038000")]:
        machine.write(f"sys/class/drm/card{gpu}/device/vendor", vendor)
        machine.write(f"sys/class/drm/card{gpu}/device/class", kind)
    machine.write("sys/class/drm/card2-HDMI-A-1/device/vendor", "0x1002")
    machine.write("sys/class/drm/card2-HDMI-A-1/device/class", "0x038000")
    machine.write("sys/class/drm/card3/device/vendor", "0x1002")  # and no class: the kernel is just removing it
    assert [gpu.name for gpu in probe(**machine.keywords()).gpus] == ["AMD graphics"]


# --- CPU and memory


@of("no_gpu")
def test_affinity_limits_cores(machine: RecordedMachine) -> None:
    cpu = probe(**machine.keywords() | {"cpus": [0, 6, 1]}).cpu
    assert (cpu.cores, cpu.threads) == (2, 3)
    assert cpu.name == "Intel Core i7-8700"


GROUPS = {
    "version 2": {"proc/self/cgroup": "0::/user/app\n", "sys/fs/cgroup/user/cpu.max": "250000 100000\n",
                  "sys/fs/cgroup/user/app/cpu.max": "max 100000\n",
                  "sys/fs/cgroup/user/app/memory.max": f"{4 << 30}\n",
                  "sys/fs/cgroup/user/memory.max": f"{8 << 30}\n",
                  "sys/fs/cgroup/user/app/memory.current": f"{3 << 30}\n",
                  "sys/fs/cgroup/user/app/memory.stat": f"anon 1\ninactive_file {1 << 30}\nactive_file {1 << 29}\n"},
    "version 2 in a container": {"proc/self/cgroup": "0::/../../docker/ab\n", "sys/fs/cgroup/cpu.max": "250000 100000",
                                 "sys/fs/cgroup/memory.max": f"{4 << 30}",
                                 "sys/fs/cgroup/memory.current": f"{3 << 29}"},
    "version 1": {"proc/self/cgroup": "4:memory:/box\n2:cpu,cpuacct:/box\n1:name=systemd:/\n",
                  "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "250000\n",
                  "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
                  "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                  "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                  "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                  "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{4 << 30}\n",
                  "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{3 << 30}\n",
                  "sys/fs/cgroup/memory/box/memory.stat":
                      f"inactive_file 7\ntotal_inactive_file {1 << 30}\ntotal_active_file {1 << 29}\n"},
}  # fmt: skip


@pytest.mark.parametrize("files", GROUPS.values(), ids=list(GROUPS))
@of("rtx_4090")
def test_control_groups_limit_cores_and_memory(machine: RecordedMachine, files: dict[str, str]) -> None:
    for path, content in files.items():
        machine.write(path, content)
    profile = probe(**machine.keywords())
    assert (profile.cpu.cores, profile.cpu.threads) == (2, 2), "2.5 CPUs' worth of time carry 2 threads"
    assert profile.ram == RamInfo(4 << 30, (4 << 30) - (3 << 29))


def test_a_system_without_proc_and_sys(tmp_path: Path) -> None:
    machine = RecordedMachine("no_gpu", tmp_path / "elsewhere")
    profile = probe(**machine.keywords() | {"root": tmp_path / "empty"})
    assert profile.cpu.name
    assert (profile.cpu.cores, profile.cpu.threads) == (6, 12)
    assert "avx2" in profile.cpu.isa or profile.cpu.isa == ()


def test_this_machine_answers() -> None:
    profile = probe()
    assert 1 <= profile.cpu.cores <= profile.cpu.threads
    assert 0 < profile.ram.free_bytes <= profile.ram.total_bytes
    assert any(gpu.usable for gpu in profile.gpus) == (not profile.gpu_reasons)
    assert HardwareProfile.from_json(profile.to_json()) == profile


@pytest.mark.parametrize(("cores", "performance", "threads"), [(1, None, 1), (2, None, 1), (8, None, 7), (14, 6, 5)])
def test_default_threads(cores: int, performance: int | None, threads: int) -> None:
    cpu = CpuInfo("any", cores, 2 * cores, (), None, performance)
    assert default_threads(HardwareProfile(cpu, RamInfo(1 << 34, 1 << 33))) == threads


@pytest.mark.parametrize(
    ("wanted", "threads", "figures"),
    [
        (None, 3, []),
        (6, 6, []),
        (9, 8, ["9", "8"]),
    ],
)
def test_no_more_threads_than_processors(wanted: int | None, threads: int, figures: list[str]) -> None:
    profile = HardwareProfile(CpuInfo("any", 4, 8, (), None, None), RamInfo(1 << 34, 1 << 33))
    chosen, why = choose_threads(profile, wanted)
    assert (chosen, numbers_in(why)) == (threads, figures)


def test_measure_fills_in_the_processors_bandwidth_alone() -> None:
    profile = replace(probe(), ram=RamInfo(1 << 34, 128 << 20))  # little is free: a small buffer, and a quick test
    measured = measure(profile, threads=2)
    assert measured.cpu.bytes_per_s is not None
    assert 1e8 < measured.cpu.bytes_per_s < 1e13
    assert replace(measured, cpu=replace(measured.cpu, bytes_per_s=None)) == profile
    with pytest.raises(InvalidRequestError, match="threads is 0"):
        measure(profile, threads=0)


# --- words


@pytest.mark.parametrize(
    ("gib", "said"),
    [(0.4, 1), (1.9, 2), (3.83, 4), (7.7, 8), (11.0, 11), (11.99, 12), (15.3, 16), (23.65, 24), (31.2, 32),
     (44.99, 48), (62.7, 64), (125.6, 128), (140.4, 140), (503.7, 512)],
)  # fmt: skip
def test_memory_is_named_as_it_is_sold(gib: float, said: int) -> None:
    profile = HardwareProfile(CpuInfo("any", 1, 1, ()), RamInfo(int(gib * (1 << 30)), 1))
    assert numbers_in(describe(profile)) == ["1", f"{said} GB"]


# --- saved profiles


@every_machine
def test_a_profile_survives_the_file(machine: RecordedMachine, tmp_path: Path) -> None:
    profile = probe(**machine.keywords())
    profile = replace(profile, sync_s=1.7e-5, cpu=replace(profile.cpu, bytes_per_s=38.1e9 / 3))
    profile.save(tmp_path / "machine.json")
    assert HardwareProfile.load(tmp_path / "machine.json") == profile
    assert [path.name for path in tmp_path.glob("machine*")] == ["machine.json"]


@every_machine
def test_recordings_say_where_they_come_from(machine: RecordedMachine) -> None:
    assert machine.source


DOCUMENTED: dict[str, Any] = {
    "cpu": {"name": "Core i9-13900K", "cores": 24, "threads": 32, "isa": ["avx2", "avx_vnni"], "bytes_per_s": 7e10},
    "ram": {"total_bytes": 206158430208, "free_bytes": 180000000000},
    "gpus": [{"index": 0, "name": "GeForce RTX 4090", "compute_capability": "8.9", "total_bytes": 25757220864,
              "free_bytes": 25000000000, "context_bytes": 450000000, "bytes_per_s": 9.2e11,
              "pcie_bytes_per_s": 25000000000, "driver": "550.120", "usable": True, "reasons": []}],
    "sync_s": 1.5e-05,
}  # fmt: skip


def test_the_documented_fields_are_enough() -> None:
    """A profile of a machine that one does not own, written by hand from the documentation of `probe`."""
    profile = HardwareProfile.from_json(DOCUMENTED | {"note": "unknown keys do no harm"})
    assert choose_gpu(profile)[0] == profile.gpus[0]
    assert default_threads(profile) == 23
    assert profile.gpus[0].pcie_bytes_per_s == 2.5e10
    assert describe(profile) == f"GeForce RTX 4090, 24{THIN}GB · 192{THIN}GB RAM · 24 cores"


def test_the_library_of_products_is_counted_where_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from native_kernels.cuda.runtime import cublas

    gpu = probe(**RecordedMachine("rtx_4090", tmp_path).keywords()).gpus[0]
    assert gpu.library_bytes is None
    monkeypatch.setattr(cublas, "find", lambda: None)
    found = with_library(gpu)
    assert found.library_bytes == cublas.GPU_BYTES > cublas.WORKSPACE_BYTES
    assert with_library(replace(gpu, usable=False)).library_bytes is None

    def none() -> None:
        raise cublas.LibraryUnavailableError("it is not there")

    monkeypatch.setattr(cublas, "find", none)
    assert with_library(gpu) == gpu


def test_probe_writes_every_documented_field(tmp_path: Path) -> None:
    written = probe(**RecordedMachine("rtx_4090", tmp_path).keywords()).to_json()
    assert set(DOCUMENTED) <= set(written)
    for part in ("cpu", "ram"):
        assert set(DOCUMENTED[part]) <= set(written[part])
    assert set(DOCUMENTED["gpus"][0]) <= set(written["gpus"][0])


@pytest.mark.parametrize("part", ["cpu", "ram", "gpus", "sync_s", "cpu.cores", "ram.free_bytes", "gpus.usable"])
def test_a_missing_key_is_named(part: str) -> None:
    broken = json.loads(json.dumps(DOCUMENTED))
    outer, _, inner = part.partition(".")
    if inner:
        holder = broken[outer]
        del (holder[0] if isinstance(holder, list) else holder)[inner]
    else:
        del broken[outer]
    with pytest.raises(ArtifactMismatchError, match=f"{inner or outer} is missing"):
        HardwareProfile.from_json(broken)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 2}, "schema version 2"),
        ({"schema_version": 0}, "schema version 0"),
        ({"schema_version": "new"}, "schema_version is 'new'"),
        ({"cpu": []}, "cpu. is list"),
        ({"gpus": {}}, "gpus is"),
        ({"gpus": [7]}, r"gpus\[0\]. is int"),
        ({"sync_s": float("nan")}, "sync_s is 'nan'"),
        ({"sync_s": True}, "sync_s is 'True'"),
        ({"ram": {"total_bytes": 0, "free_bytes": 0}}, "ram.total_bytes is"),
        ({"ram": {"total_bytes": 1e9, "free_bytes": 0}}, "ram.total_bytes is"),
        ({"ram": {"total_bytes": 10**40, "free_bytes": 0}}, "ram.total_bytes is"),
        ({"cpu": DOCUMENTED["cpu"] | {"isa": "avx2"}}, "cpu.isa is"),
        ({"gpus": [DOCUMENTED["gpus"][0] | {"free_bytes": None}]}, "needed for a usable GPU"),
        ({"gpus": [DOCUMENTED["gpus"][0] | {"usable": 1}]}, "usable is '1'"),
        ({"gpus": [DOCUMENTED["gpus"][0] | {"driver": 550}]}, "driver is '550'"),
    ],
)
def test_wrong_values_are_refused_with_their_place(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ArtifactMismatchError, match=words) as caught:
        HardwareProfile.from_json(DOCUMENTED | change)
    assert caught.value.hint


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[]", b"null", b"{", b'{"a": NaN}', b"[" * 100_000, b'{"sync_s": ' + b"9" * 5000 + b"}"],
)
def test_garbage_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "garbage.json"
    path.write_bytes(content)
    with pytest.raises(ArtifactMismatchError, match=r"garbage\.json"):
        HardwareProfile.load(path)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ArtifactMismatchError, match=r"huge\.json"):
        HardwareProfile.load(path)


def test_files_that_are_not_there_or_not_writable(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"none\.json"):
        HardwareProfile.load(tmp_path / "none.json")
    with pytest.raises(EngineError, match=r"machine\.json"):
        HardwareProfile.from_json(DOCUMENTED).save(tmp_path / "no folder" / "machine.json")


def test_importing_loads_neither_binding_nor_kernels() -> None:
    code = (
        "import sys, engine.machine.hardware, engine.machine.monitor; "
        "print([name for name in ('pynvml', 'psutil', 'numba', 'llvmlite', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert hardware.__doc__


@pytest.mark.parametrize("first", [True, False], ids=["integrated first", "GPU first"])
@pytest.mark.parametrize("claimed_gib", [2, 8, 31])
@pytest.mark.parametrize("name", ["rtx_4090", "rtx_2080_ti", "laptop_hybrid"])
def test_graphics_that_claim_the_ram_are_never_chosen(name: str, claimed_gib: int, first: bool, tmp_path: Path) -> None:
    """Also where they say that they are usable and have more memory than the GPU."""
    profile = probe(**RecordedMachine(name, tmp_path).keywords())
    inside = GpuInfo(
        None, "Intel graphics", None, claimed_gib << 30, claimed_gib << 30, None, None, None, None, usable=True
    )
    own = next(gpu for gpu in profile.gpus if gpu.usable)
    for free in (own.free_bytes, 1 << 30):
        gpu = replace(own, free_bytes=free)
        chosen, why = choose_gpu(replace(profile, gpus=(inside, gpu) if first else (gpu, inside)))
        assert chosen is gpu
        assert why.startswith(f"{gpu.name}: ")
        assert "\n" not in why
        if claimed_gib << 30 > (free or 0):
            assert "share the RAM" in why


_MOUNTS = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:23 / /dev/shm rw - tmpfs tmpfs rw
24 22 0:24 / /mnt/with\\040space rw master:2 propagate_from:1 - ramfs none rw
25 23 8:2 / /dev/shm/disk rw - ext4 /dev/sdb1 rw
26 22 0:26 / /over rw - tmpfs none rw
27 22 8:3 / /over rw - ext4 /dev/sdc1 rw
a line that is cut
"""


@pytest.mark.skipif(ON_WINDOWS, reason="paths of Linux")
@pytest.mark.parametrize(
    ("path", "in_ram"),
    [
        ("/dev/shm/models/m.gguf", True), ("/dev/shm", True), ("/dev/shmother/m.gguf", False),
        ("/dev/shm/disk/m.gguf", False), ("/home/m.gguf", False), ("/mnt/with space/m.gguf", True),
        ("/over/m.gguf", False),
    ],
)  # fmt: skip
def test_files_that_lie_in_ram_are_told_by_their_file_system(tmp_path: Path, path: str, in_ram: bool) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(_MOUNTS)
    assert lies_in_ram(Path(path), tmp_path) == in_ram
    assert not lies_in_ram(Path(path), tmp_path / "nothing")


ROOT = Path(__file__).resolve().parents[3]
_MANY_THREADS = """
import sys, threading
import numpy as np
from engine.machine.cpu_and_ram import process_ram_bytes, return_freed_ram, share_heaps

if sys.argv[1] == "shared":
    share_heaps()
np.ones(3 << 20).sum()  # from now on, arrays of this size come from heaps
before, together = process_ram_bytes(), threading.Barrier(12)

def allocate():
    kept = np.ones(2 << 20)
    together.wait()
    del kept

threads = [threading.Thread(target=allocate) for _ in range(12)]
for one in threads:
    one.start()
for one in threads:
    one.join()
return_freed_ram()
print((process_ram_bytes() - before) >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there does the C library keep freed memory")
def test_what_threads_have_freed_goes_back_to_the_system() -> None:
    if "glibc" not in platform.libc_ver():
        pytest.skip("other C libraries have other heaps")
    own, shared = (
        int(subprocess.check_output([sys.executable, "-c", _MANY_THREADS, how], cwd=ROOT)) for how in ("own", "shared")
    )
    assert own > 40  # MiB; otherwise the next line says nothing
    assert shared < 40


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there does the C library keep freed memory")
def test_freed_memory_goes_back_to_the_system() -> None:
    kept = [bytearray(100_000) for _ in range(600)]
    for one in kept:
        one[::4096] = bytes(len(one[::4096]))
    full = process_ram_bytes()
    del kept[:-1]  # the last lies above the others, so that freeing them alone returns nothing
    return_freed_ram()
    assert process_ram_bytes() < full - (40 << 20)
