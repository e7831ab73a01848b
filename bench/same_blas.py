"""The environment in which both sides of a comparison run: OpenBLAS on the kernels that the benches choose for this
processor, unless OPENBLAS_CORETYPE is set; and threads that wait without spinning.
"""

import os
import pathlib
import subprocess


class SameBlas:
    def __init__(self, program):
        """program: any bench of the build, beside which bench_blas_kernels lies."""
        asked = subprocess.run([str(pathlib.Path(program).parent / "bench_blas_kernels")], check=True,
                               stdout=subprocess.PIPE, text=True)
        self.kernels = asked.stdout.strip()
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        if self.kernels:
            self.environment["OPENBLAS_CORETYPE"] = self.kernels

    def run(self, command):
        """What it prints."""
        words = [str(word) for word in command]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=self.environment).stdout

    def sentence(self, peers):
        """peers: what the peer says of itself (bench/peers/blas.py). Fails where it runs on other kernels."""
        if self.kernels and peers and peers != self.kernels:
            raise SystemExit(f"PyTorch runs on OpenBLAS's {peers} kernels, bilevel on {self.kernels}: not comparable")
        return f"BLAS kernels: PyTorch {peers or 'not OpenBLAS'}, bilevel {self.kernels or 'not OpenBLAS'}"
