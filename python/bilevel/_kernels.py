"""Which kernels OpenBLAS runs on.

Debian 12's OpenBLAS does not know newer processors and falls back to kernels without vector instructions, which are
several times slower. It reads OPENBLAS_CORETYPE while it is loaded: so another process is asked which kernels it takes,
and the variable is set before torch is imported. The program `bilevel` starts itself again for the same reason and with
the same choice, so that both have the same bits. Nothing is done where torch or numpy are there already, or where the
user has set the variable; jobs then warn of a fallback.
"""

from __future__ import annotations

import os
import subprocess
import sys

_ASK = (
    "import ctypes\n"
    "name = ctypes.CDLL('libblas.so.3').openblas_get_corename\n"
    "name.restype = ctypes.c_char_p\n"
    "print(name().decode())"
)
# Core types of OpenBLAS by the vector instructions that they are written for; others are newer ones.
_OLD = {
    0: "Katmai Coppermine Northwood Prescott Banias Atom Core2 Penryn Dunnington Nehalem Athlon Opteron Opteron_SSE3 "
       "Barcelona Bobcat Nano Generic Unknown",
    1: "Sandybridge Bulldozer Piledriver Steamroller Excavator",
    2: "Haswell Zen",
}


def _vectors(core: str) -> int:
    return next((level for level, names in _OLD.items() if core.lower() in names.lower().split()), 3)


def _best() -> str:
    """As bilevel/run/blas_kernels.cpp has it."""
    facts: dict[str, str] = {}
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    flags = set(facts.get("flags", "").split())
    if not {"avx2", "fma"} <= flags:
        return ""
    if facts.get("vendor_id") == "AuthenticAMD":
        return "Zen"
    if not {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags:
        return "Haswell"
    return "Cooperlake" if "avx512_bf16" in flags else "SkylakeX"


def choose() -> None:
    if os.environ.get("OPENBLAS_CORETYPE") or "torch" in sys.modules or "numpy" in sys.modules:
        return
    try:
        best = _best()
        if not best:
            return
        asked = subprocess.run([sys.executable, "-S", "-c", _ASK], capture_output=True, text=True, timeout=10, check=True)
        if _vectors(asked.stdout.strip()) < _vectors(best):
            os.environ["OPENBLAS_CORETYPE"] = best
    except (OSError, subprocess.SubprocessError):  # another BLAS, or another system
        return
