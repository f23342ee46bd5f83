#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step time as `tandem plan` simulates it against step time as measured, on the CPU with a measured profile.

For each shape one variant of the job is profiled; from that profile every variant is planned, also those with
another prefetch distance or accumulation, and every variant is run. Two ranks of one thread each, Gloo. The rounds
run in turn; what counts is the fastest run of each variant and the profile of the fastest profiled run, since
whatever else the machine does only slows down. Prints a JSON object per variant. Asserts nothing about time.

    bench/simulated_vs_measured.py [--build build/release] [--data FOLDER] [--rounds 3] [--goal 15]
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import cpu_vs_fsdp2 as bench

# Of hidden 64 and 128 as in cpu_vs_fsdp2.py; (prefetch, accumulation), the first is the one that is profiled.
VARIANTS = [(1, 4), (0, 4), (2, 4), (1, 2), (1, 8), (0, 2)]
PROFILED_STEPS = 8


def job(folder, shape, prefetch, accumulation, data, steps):
    hidden, layers, length, mbs, _, _, _ = shape
    text = bench.JOB.format(hidden=hidden, inner=hidden * 8 // 3 // 32 * 32, layers=layers, heads=hidden // 32,
                            length=length, mbs=mbs, batch=mbs * accumulation * bench.RANKS, data=data,
                            ranks=bench.RANKS, steps=steps)
    text = text.replace("fsdp: {strategy: zero3}", f"fsdp: {{strategy: zero3, prefetch: {prefetch}}}")
    path = pathlib.Path(folder) / f"{hidden}-{prefetch}-{accumulation}.yaml"
    path.write_text(text)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=bench.HERE.parent / "build" / "release")
    parser.add_argument("--data", default="/usr/include/c++/12")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--goal", type=float, default=15.0, help="percent, printed beside the result")
    options = parser.parse_args()
    tools = options.build / "bin"
    for shape in bench.SHAPES:
        timed = shape[5]
        with tempfile.TemporaryDirectory() as folder:
            steps = bench.WARMUP + 2 * PROFILED_STEPS + 2 + timed
            jobs = {variant: job(folder, shape, *variant, options.data, steps) for variant in VARIANTS}
            best, profiled, profile_text = {}, None, None
            for _ in range(options.rounds):
                for variant, path in jobs.items():
                    profile = pathlib.Path(folder) / "profile.json"
                    result = json.loads(bench.run([tools / "tandem-bench-step", path, tools / "tandem-trainer",
                                                   str(bench.WARMUP), "--profile", str(PROFILED_STEPS), profile]))
                    best[variant] = min(best.get(variant, result), result, key=lambda r: r["ms_per_step"])
                    if variant == VARIANTS[0] and (profiled is None or result["ms_per_step"] < profiled):
                        profiled, profile_text = result["ms_per_step"], profile.read_text()
            profile.write_text(profile_text)
            for (prefetch, accumulation), path in jobs.items():
                plan = json.loads(bench.run([tools / "tandem", "plan", "-f", path, "--profile", profile, "-o", "json"]))
                simulated = plan["prediction"]["step_seconds"] * 1e3
                measured = best[(prefetch, accumulation)]
                difference = 100 * (simulated / measured["ms_per_step"] - 1)
                print(json.dumps({"hidden": shape[0], "layers": shape[1], "sequence_length": shape[2],
                                  "micro_batch_size": shape[3], "prefetch": prefetch, "accumulation": accumulation,
                                  "profiled": (prefetch, accumulation) == VARIANTS[0],
                                  "simulated_ms": round(simulated, 3), "measured_ms": round(measured["ms_per_step"], 3),
                                  "program_ms": round(measured["program_ms"], 3),
                                  "difference_percent": round(difference, 1), "goal_percent": options.goal,
                                  "within": abs(difference) <= options.goal, **bench.origin(measured)}), flush=True)


if __name__ == "__main__":
    main()
