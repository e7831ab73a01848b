"""Builds the Python package by CMake and packs it as a wheel: the backend that pyproject.toml names.

    pip install --no-build-isolation .

It needs what the tree needs (scripts/install-dependencies) and no network, and nothing of Python's but its standard
library. BILEVEL_CMAKE_ARGS adds arguments of CMake's; BILEVEL_BUILD_DIR names the build folder, build/wheel by default;
BILEVEL_BUILT_PACKAGE names a package that is built already.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from typing import Any, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]


def version() -> str:
    found = re.search(r"project\(bilevel VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    if found is None:
        raise RuntimeError("CMakeLists.txt does not say the version")
    return found.group(1)


def tag() -> str:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    return f"{python}-{python}-{platform}"


def metadata() -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return (
        "Metadata-Version: 2.1\nName: bilevel\n"
        f"Version: {version()}\n"
        "Summary: Gradient-based bilevel optimisation with PyTorch\n"
        "Requires-Python: >=3.9\nRequires-Dist: torch\n"
        'Provides-Extra: arrays\nRequires-Dist: numpy; extra == "arrays"\n'
        'Provides-Extra: sklearn\nRequires-Dist: numpy; extra == "sklearn"\n'
        'Requires-Dist: scikit-learn; extra == "sklearn"\n'
        f"Description-Content-Type: text/markdown\n\n{readme}"
    )


def wheel_facts() -> str:
    return f"Wheel-Version: 1.0\nGenerator: bilevel\nRoot-Is-Purelib: false\nTag: {tag()}\n"


def build_folder() -> pathlib.Path:
    """Kept: a second build compiles what has changed, and a compiler cache knows the files of other builds of the tree."""
    folder = pathlib.Path(os.environ.get("BILEVEL_BUILD_DIR") or ROOT / "build" / "wheel").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def built() -> pathlib.Path:
    """The package, with its module and its stubs."""
    if ready := os.environ.get("BILEVEL_BUILT_PACKAGE"):
        package = pathlib.Path(ready)
        if not any(package.glob("_core.*.so")):
            raise RuntimeError(f"BILEVEL_BUILT_PACKAGE={ready}: there is no module in it")
        return package
    folder = build_folder()
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = [
        "cmake", "-S", str(ROOT), "-B", str(folder), *generator, "-DCMAKE_BUILD_TYPE=Release", "-DBILEVEL_PYTHON=ON",
        f"-DBILEVEL_PYTHON_EXECUTABLE={sys.executable}", "-DBILEVEL_CLI=OFF", "-DBILEVEL_TESTS=OFF",
        "-DBILEVEL_BENCH=OFF", "-DBILEVEL_EXAMPLES=OFF", "-DBILEVEL_WERROR=OFF",
        "-DBILEVEL_UNITY=all",  # nearly always built from nothing
        *shlex.split(os.environ.get("BILEVEL_CMAKE_ARGS", "")),
    ]
    subprocess.run(configure, check=True)
    package = folder / "python" / "bilevel"
    try:
        # A number, because make takes --parallel alone for as many compilers at once as there are files.
        jobs = str(len(os.sched_getaffinity(0)))
        subprocess.run(["cmake", "--build", str(folder), "--parallel", jobs, "--target", "bilevel-python-package"], check=True)
    except subprocess.CalledProcessError as error:
        raise RuntimeError("the module was not built: see what CMake says above, and scripts/install-dependencies") from error
    return package


def record(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


# ---- the hooks of PEP 517 ----


def build_wheel(wheel_directory: str, config_settings: Optional[dict[str, Any]] = None, metadata_directory: Optional[str] = None) -> str:
    name = f"bilevel-{version()}-{tag()}.whl"
    info = f"bilevel-{version()}.dist-info"
    package = built()
    files = {
        f"bilevel/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and path.suffix in (".py", ".pyi", ".so", ".typed")
    }
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = wheel_facts().encode()
    lines = [record(*one) for one in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*lines, f"{info}/RECORD,,"]) + "\n").encode()
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)  # without a date: the same sources give the same file
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return name


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Optional[dict[str, Any]] = None) -> str:
    info = pathlib.Path(metadata_directory) / f"bilevel-{version()}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(metadata(), encoding="utf-8")
    (info / "WHEEL").write_text(wheel_facts(), encoding="utf-8")
    return info.name


def get_requires_for_build_wheel(config_settings: Optional[dict[str, Any]] = None) -> list[str]:
    return []
