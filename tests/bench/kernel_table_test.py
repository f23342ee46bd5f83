#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/kernel_table.py, and the caption that says where they are from.

Usage: kernel_table_test.py REPOSITORY
"""
import json
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(sys.argv[1]).resolve()
ORIGIN = {"machine": "NVIDIA H200", "commit": "4f2c9d1a0b7e", "date": "2026-11-24T04:30:00Z"}
LINES = [
    {"copy_tb_per_s": 4.26, "gemm_tflop_per_s": 804.2},
    {"shape": "demo", "operation": "rope", "ms": 0.0046, "bytes": 1e6, "tb_per_s": 0.2174, "of_bound": 0.05, "aten_ms": 0.047},
    {"shape": "demo", "operation": "attention within documents", "ms": 0.016, "flops": 1e6, "tflop_per_s": 4.0,
     "of_bound": 0.01, "aten_ms": None},
]
EXPECTED = """NVIDIA H200, commit 4f2c9d1a0b7e, 2026-11-24T04:30:00Z: copy 4.26 TB/s, bf16 product of 8192³ 804 TFLOP/s

demo

| operation | ms | rate | of the bound | ATen, ms |
| --- | ---: | ---: | ---: | ---: |
| rope | 0.005 | 0.22 TB/s | 5% | 0.047 |
| attention within documents | 0.016 | 4 TFLOP/s | 1% |  |
"""


def main():
    text = "\n".join(["a warning", *(json.dumps(line | ORIGIN) for line in LINES)])
    done = subprocess.run([sys.executable, REPOSITORY / "bench/kernel_table.py"], input=text, capture_output=True, text=True)
    if (done.returncode, done.stdout) != (0, EXPECTED):
        print(f"exit {done.returncode}\n{done.stdout}{done.stderr}\ninstead of\n{EXPECTED}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
