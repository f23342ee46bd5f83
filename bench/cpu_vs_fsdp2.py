#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps per second on the CPU: Tandem's trainers against PyTorch FSDP2, in one call on one machine.

Two ranks of one thread each, a tiny Llama in fp32, Gloo; both sides warm up first. The two run in turn, and of
each the fastest round counts: whatever else the machine does only slows down. Prints one JSON object per result
and one per shape with the ratio. Asserts nothing about time.

    bench/cpu_vs_fsdp2.py [--build build/release] [--python PYTHON_WITH_TORCH] [--data FOLDER] [--rounds 3]
"""
import argparse
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARMUP = 4
# hidden, layers, sequence length, micro-batch size, accumulation, timed steps, goal
SHAPES = [(64, 2, 64, 2, 4, 40, 5.0), (128, 4, 256, 4, 4, 12, 1.5)]
RANKS = 2

JOB = """
name: bench
model:
  hidden_size: {hidden}
  intermediate_size: {inner}
  num_hidden_layers: {layers}
  num_attention_heads: {heads}
  vocab_size: 256
data: {{train: "{data}", validation_fraction: 0, tokenizer: bytes}}
training:
  steps: {steps}
  sequence_length: {length}
  micro_batch_size: {mbs}
  global_batch_size: {batch}
  optimizer: {{name: adamw, learning_rate: 3.0e-4}}
  validate_every_steps: 0
parallelism: {{ranks: {ranks}, fsdp: {{strategy: zero3}}}}
precision: {{compute: fp32}}
report: {{parameter_norms: true}}
"""


def origin(result):
    """Where a result of tandem-bench-step is from, for what is printed beside it."""
    return {name: result[name] for name in ("machine", "commit", "date")}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fsdp2(python, shape):
    hidden, layers, length, mbs, accumulation, steps, _ = shape
    arguments = [str(x) for x in (hidden, layers, length, mbs, accumulation, steps)]
    text = run([python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port",
                str(free_port()), str(HERE / "peers" / "fsdp2_cpu.py"), *arguments])
    return float(re.search(r"([0-9.]+) ms/step", text).group(1))


def tandem(build, data, shape):
    hidden, layers, length, mbs, accumulation, steps, _ = shape
    with tempfile.TemporaryDirectory() as folder:
        job = pathlib.Path(folder) / "job.yaml"
        job.write_text(JOB.format(hidden=hidden, inner=hidden * 8 // 3 // 32 * 32, layers=layers, heads=hidden // 32,
                                  length=length, mbs=mbs, batch=mbs * accumulation * RANKS, data=data, ranks=RANKS,
                                  steps=WARMUP + steps))
        text = run([build / "bin" / "tandem-bench-step", job, build / "bin" / "tandem-trainer", str(WARMUP)])
    return json.loads(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build" / "release")
    parser.add_argument("--python", default=str(pathlib.Path.home() / ".cache/tandem/torch-2.11.0/bin/python"))
    parser.add_argument("--data", default="/usr/include/c++/12")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for shape in SHAPES:
        hidden, layers, length, mbs, accumulation, steps, goal = shape
        where = {"ranks": RANKS, "threads": 1, "hidden": hidden, "layers": layers, "sequence_length": length,
                 "micro_batch_size": mbs, "accumulation": accumulation, "timed_steps": steps, "warmup_steps": WARMUP}
        times = {"fsdp2": [], "tandem": []}
        for _ in range(options.rounds):
            times["fsdp2"].append(fsdp2(options.python, shape))
            result = tandem(options.build, options.data, shape)
            times["tandem"].append(result["ms_per_step"])
        where |= origin(result)
        tokens = RANKS * accumulation * mbs * length
        for system, rounds in times.items():
            best = min(rounds)
            print(json.dumps({"system": system, "ms_per_step": round(best, 2),
                              "tokens_per_second": round(tokens / best * 1e3), "rounds": [round(r, 2) for r in rounds],
                              **where}), flush=True)
        print(json.dumps({"against": "PyTorch FSDP2 eager, Gloo", "ratio": round(min(times["fsdp2"]) / min(times["tandem"]), 2),
                          "goal": goal, **where}), flush=True)


if __name__ == "__main__":
    main()
