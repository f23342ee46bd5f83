#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps per second of every strategy on the CPU, in one call on one machine: what sharding costs there.

Four ranks of one thread each, a tiny Llama, Gloo. Every round runs all strategies in turn, and of each the fastest
round counts. Prints one JSON object per strategy. Asserts nothing about time.

    bench/cpu_strategies.py [--build build/release] [--data FOLDER] [--compute fp32] [--rounds 3]
"""
import argparse
import json
import pathlib
import tempfile

import cpu_vs_fsdp2

RANKS = 4
STRATEGIES = ["replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"]
WARMUP = 4
STEPS = 20
JOB = """
name: bench
model: {{hidden_size: 128, intermediate_size: 320, num_hidden_layers: 4, num_attention_heads: 4, vocab_size: 256}}
data: {{train: "{data}", validation_fraction: 0, tokenizer: bytes}}
training: {{steps: {steps}, sequence_length: 256, micro_batch_size: 2, global_batch_size: 16, validate_every_steps: 0}}
parallelism: {{ranks: {ranks}, fsdp: {{strategy: {strategy}}}}}
precision: {{compute: {compute}}}
report: {{parameter_norms: true}}
"""


def milliseconds(build, data, compute, strategy):
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.yaml"
        job.write_text(JOB.format(data=data, steps=WARMUP + STEPS, ranks=RANKS, strategy=strategy, compute=compute))
        text = cpu_vs_fsdp2.run([build / "bin" / "tandem-bench-step", job, build / "bin" / "tandem-trainer", str(WARMUP)])
    return json.loads(text)["ms_per_step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = cpu_vs_fsdp2.HERE.parent
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "release")
    parser.add_argument("--data", type=pathlib.Path, default=root / "schedules")
    parser.add_argument("--compute", default="fp32", choices=["fp32", "fp64", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()

    times = {strategy: [] for strategy in STRATEGIES}
    for _ in range(args.rounds):
        for strategy in STRATEGIES:
            times[strategy].append(milliseconds(args.build.resolve(), args.data.resolve(), args.compute, strategy))
    for strategy, rounds in times.items():
        fastest = min(rounds)
        print(json.dumps({"strategy": strategy, "ranks": RANKS, "compute": args.compute,
                          "steps_per_second": round(1e3 / fastest, 3), "ms_per_step": round(fastest, 2),
                          "all_ms": [round(r, 2) for r in rounds]}), flush=True)


if __name__ == "__main__":
    main()
