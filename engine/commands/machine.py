"""The commands probe and host."""

from __future__ import annotations

import argparse

from engine.commands.output import print_json


def probe(arguments: argparse.Namespace) -> int:
    from engine.machine import hardware

    profile = hardware.probe()
    if arguments.measure:
        from engine.machine.gpu_speed import measure_gpus
        from engine.machine.measured_hardware import remember

        threads = arguments.threads or hardware.default_threads(profile)
        profile = measure_gpus(hardware.measure(profile, threads=threads), threads)
        remember(profile, threads)
    if arguments.json:
        print_json(profile.to_json())
        return 0
    print(hardware.describe(profile))
    print(
        f"  {profile.cpu.name}: {profile.cpu.cores} cores, {profile.cpu.threads} threads, {' '.join(profile.cpu.isa)}"
    )
    print(f"  RAM: {profile.ram.free_bytes / 1e9:.1f} of {profile.ram.total_bytes / 1e9:.1f} GB free")
    if profile.cpu.bytes_per_s:
        print(f"  memory read at {profile.cpu.bytes_per_s / 1e9:.1f} GB/s")
    for gpu in profile.gpus:
        print(f"  GPU {gpu.index}: {gpu.name}: " + ("usable" if gpu.usable else "; ".join(gpu.reasons)))
        if gpu.bytes_per_s and gpu.pcie_bytes_per_s:
            print(f"    memory read at {gpu.bytes_per_s / 1e9:.0f} GB/s, filled from RAM at "
                  f"{gpu.pcie_bytes_per_s / 1e9:.1f} GB/s")  # fmt: skip
        if gpu.reach_bytes_per_s and gpu.beside_share:
            print(f"    reads the RAM itself at {gpu.reach_bytes_per_s / 1e9:.1f} GB/s while the CPU has "
                  f"{gpu.beside_share:.0%} of its rate")  # fmt: skip
    if profile.sync_s:
        print(f"  an exchange between CPU and GPU takes {1e6 * profile.sync_s:.1f} us")
    return 0


def host(arguments: argparse.Namespace) -> int:
    if arguments.library:
        from engine.library.service.host import serve

        return serve()
    from engine.service.stdio import serve_stdio

    return serve_stdio()
