"""The files that a program needs to start: none if it is static, else its loader and its libraries."""

import platform
import re
import struct
import subprocess
from pathlib import Path

MACHINES = {62: "amd64", 183: "arm64"}
HOST = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PT_INTERP = 3


def inspect(program: Path) -> tuple[str, str | None]:
    """The architecture of a program, and its loader: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html"""
    data = program.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit(f"image/build: {program} is no 64-bit ELF program: build the programs first (make image)")

    (machine,) = struct.unpack_from("<H", data, 18)
    (headers,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    loader = None
    for at in range(headers, headers + size * count, size):
        (kind,) = struct.unpack_from("<I", data, at)
        if kind == PT_INTERP:
            (offset,) = struct.unpack_from("<Q", data, at + 8)
            (length,) = struct.unpack_from("<Q", data, at + 32)
            loader = data[offset : offset + length].rstrip(b"\0").decode()

    return MACHINES.get(machine, f"machine {machine}"), loader


def needed(program: Path, architecture: str) -> set[Path]:
    """The paths of the loader and of all libraries, by the loader of this machine."""
    found, loader = inspect(program)
    if found != architecture:
        raise SystemExit(f"image/build: {program} is for {found}, not for {architecture}: name the folder of {architecture}")
    if loader is None:
        return set()
    if architecture != HOST:
        raise SystemExit(
            f"image/build: {program} is not static, and its libraries are not on this machine, which is {HOST}: "
            f"build it for a target with musl, or on a machine of {architecture}"
        )

    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    if "not found" in listed:
        raise SystemExit(f"image/build: a library of {program} is absent on this machine:\n{listed}")
    return {Path(loader)} | {Path(path) for path in re.findall(r"=> (/\S+) \(0x", listed)}
