#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Markdown tables of what tandem-bench-kernels printed, with where it is from: kernel_table.py <lines.json"""
import json
import sys

lines = [json.loads(line) for line in sys.stdin if line.startswith("{")]
bounds = next(line for line in lines if "copy_tb_per_s" in line)
print(f"{bounds['machine']}, commit {bounds['commit']}, {bounds['date']}: copy {bounds['copy_tb_per_s']:.2f} TB/s, bf16 product of 8192³ "
      f"{bounds['gemm_tflop_per_s']:.0f} TFLOP/s")
shapes = list(dict.fromkeys(line["shape"] for line in lines if "shape" in line))
for shape in shapes:
    print(f"\n{shape}\n\n| operation | ms | rate | of the bound | ATen, ms |\n| --- | ---: | ---: | ---: | ---: |")
    for line in lines:
        if line.get("shape") != shape:
            continue
        rate = f"{line['tb_per_s']:.2f} TB/s" if "tb_per_s" in line else f"{line['tflop_per_s']:.0f} TFLOP/s"
        aten = "" if line["aten_ms"] is None else f"{line['aten_ms']:.3f}"
        print(f"| {line['operation']} | {line['ms']:.3f} | {rate} | {line['of_bound']:.0%} | {aten} |")
