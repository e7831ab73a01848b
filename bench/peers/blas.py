"""Which kernels OpenBLAS runs on in this process."""

import ctypes


def kernels():
    """OpenBLAS's own name for them; empty where another BLAS is loaded. Call it after importing torch."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        paths = {line.split()[-1] for line in maps if "libopenblas" in line}
    for path in sorted(paths):
        try:
            name = ctypes.CDLL(path).openblas_get_corename
        except (OSError, AttributeError):
            continue
        name.restype = ctypes.c_char_p
        return name().decode()
    return ""
