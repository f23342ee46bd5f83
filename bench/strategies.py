#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps per second and memory of every strategy, in one call on one machine: what sharding costs there.

On CPUs four ranks of one thread each, a tiny Llama, Gloo; on GPUs eight layers of Llama-3-8B, a rank a GPU, NCCL. Every
round runs all strategies in turn, and of each the fastest round counts. With --norms both every job runs with norms of
every parameter and without, in turn: "norms_cost" is the median over the rounds of what they add to a step, by the
clock, and on CPUs by processor time. Prints one JSON object per strategy and number of ranks; on GPUs with what the driver says is used on a GPU at most ("used_gib", less what was used before) and what
`tandem plan` says of arena and outside ("planned_gib"). Asserts nothing.

    bench/strategies.py [--device cpu] [--ranks 4 ...] [--build build/release] [--data FOLDER] [--compute fp32]
                        [--rounds 3] [--strategies zero3 ...] [--norms on|off|both]
"""
import argparse
import json
import pathlib
import resource
import statistics
import tempfile
import threading

import cpu_vs_fsdp2

STRATEGIES = ["replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"]
WARMUP = 4
# Of a device: model, steps behind the warm-up, sequence length, sequences of a microbatch, microbatches of a rank.
SHAPES = {
    "cpu": ("{hidden_size: 128, intermediate_size: 320, num_hidden_layers: 4, num_attention_heads: 4, vocab_size: 256}",
            20, 256, 2, 2),
    "cuda": ("{preset: llama-3-8b, num_hidden_layers: 8}", 8, 4096, 4, 1),
}
JOB = """
name: bench
model: {model}
data: {{train: "{data}", validation_fraction: 0, tokenizer: bytes}}
training: {{steps: {steps}, sequence_length: {length}, micro_batch_size: {sequences}, global_batch_size: {batch}, validate_every_steps: 0}}
parallelism: {{ranks: {ranks}, fsdp: {{strategy: {strategy}}}}}
precision: {{compute: {compute}}}
report: {{parameter_norms: {norms}}}
resources: {{device: {device}}}
"""
PROFILE = "h200"


class UsedMemory:
    """The most that the driver says is used on GPU 0 while the object is entered, less what was before, in GiB."""

    def __enter__(self):
        self.before = self.most = self.now()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def watch(self):
        while not self.done.wait(0.2):
            self.most = max(self.most, self.now())

    def gibibytes(self):
        return (self.most - self.before) / 1024

    @staticmethod
    def now():
        query = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int(cpu_vs_fsdp2.run(query))


def planned_gibibytes(build, job):
    plan = json.loads(cpu_vs_fsdp2.run([build / "bin" / "tandem", "plan", "-f", job, "--profile", PROFILE, "-o", "json"]))
    return (plan["memory"]["arena_bytes"] + plan["prediction"]["outside_bytes"]) / 2**30


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(build, job, device, steps):
    """Milliseconds of a step; on CPUs of processor time too, start and end included; of a GPU's memory what was used
    and planned; and where it is from."""
    trainer = build / "bin" / ("tandem-trainer-cuda" if device == "cuda" else "tandem-trainer")
    command = [build / "bin" / "tandem-bench-step", job, trainer, str(WARMUP)]
    if device == "cpu":
        before = processor_seconds()
        result = json.loads(cpu_vs_fsdp2.run(command))
        used = {"processor_ms": round((processor_seconds() - before) * 1e3 / steps, 3)}
        return result["ms_per_step"], used, cpu_vs_fsdp2.origin(result)
    with UsedMemory() as used:
        text = cpu_vs_fsdp2.run(command)
    result = json.loads(text)
    gibibytes = {"used_gib": round(used.gibibytes(), 3), "planned_gib": round(planned_gibibytes(build, job), 3)}
    return result["ms_per_step"], gibibytes, cpu_vs_fsdp2.origin(result)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = cpu_vs_fsdp2.HERE.parent
    parser.add_argument("--device", default="cpu", choices=list(SHAPES))
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "release")
    parser.add_argument("--data", type=pathlib.Path, default=root / "schedules")
    parser.add_argument("--compute", choices=["fp32", "fp64", "bf16"])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, choices=STRATEGIES)
    parser.add_argument("--norms", default="on", choices=["on", "off", "both"])
    args = parser.parse_args()
    on_gpus = args.device == "cuda"
    all_ranks = args.ranks or ([1, 2] if on_gpus else [4])
    compute = args.compute or ("bf16" if on_gpus else "fp32")
    rounds = args.rounds or (1 if on_gpus else 3)
    model, steps, length, sequences, microbatches = SHAPES[args.device]

    norms_too = {"on": [True], "off": [False], "both": [True, False]}[args.norms]

    times = {}
    details = {}
    with tempfile.TemporaryDirectory() as folder:
        for round_number in range(rounds):
            for ranks in all_ranks:
                for strategy in args.strategies:
                    if strategy in ("hsdp", "hfsdp") and ranks % 2 == 1:
                        continue  # two replicas
                    for norms in norms_too if round_number % 2 == 0 else reversed(norms_too):
                        job = pathlib.Path(folder) / "job.yaml"
                        job.write_text(JOB.format(
                            model=model, data=args.data.resolve(), steps=WARMUP + steps, length=length,
                            sequences=sequences, batch=sequences * microbatches * ranks, ranks=ranks, strategy=strategy,
                            compute=compute, norms=str(norms).lower(), device=args.device))
                        ms, detail, origin = run(args.build.resolve(), job, args.device, WARMUP + steps)
                        times.setdefault((ranks, strategy, norms), []).append(ms)
                        details.setdefault((ranks, strategy, norms), []).append(detail)
                        print(json.dumps({"ranks": ranks, "strategy": strategy, "parameter_norms": norms,
                                          "ms": round(ms, 2), **detail, **origin}), flush=True)
    for (ranks, strategy, norms), all_ms in times.items():
        fastest = min(all_ms)
        print(json.dumps({"strategy": strategy, "ranks": ranks, "compute": compute, "parameter_norms": norms,
                          "steps_per_second": round(1e3 / fastest, 3), "ms_per_step": round(fastest, 2),
                          "all_ms": [round(ms, 2) for ms in all_ms], **details[ranks, strategy, norms][-1], **origin}), flush=True)
    for ranks, strategy in {(ranks, strategy): None for ranks, strategy, _ in times} if args.norms == "both" else ():
        with_norms, without = times[ranks, strategy, True], times[ranks, strategy, False]
        cost = {"ms": statistics.median(a - b for a, b in zip(with_norms, without))}
        if not on_gpus:
            cost["processor_ms"] = statistics.median(
                a["processor_ms"] - b["processor_ms"]
                for a, b in zip(details[ranks, strategy, True], details[ranks, strategy, False]))
        print(json.dumps({"strategy": strategy, "ranks": ranks, "norms_cost": {k: round(v, 3) for k, v in cost.items()},
                          "of_a_step": round(cost["ms"] / min(without), 4), **origin}), flush=True)


if __name__ == "__main__":
    main()
