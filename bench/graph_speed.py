#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a step with CUDA graphs and without, in one call on one machine.

Shapes that launches bound: "dense" is a decoder of hidden size 1024 and 24 layers with one short sequence a microbatch
and a vocabulary of bytes, so that neither head nor optimizer hides what launches cost; "dense short" has sequences of
128 tokens instead of 512, "dense 128k" a vocabulary of 128,256, "sparse" eight experts a layer, which two ranks share
with --ranks 2. Every round runs a shape without
graphs and with them in turn; of each the median over the rounds counts. Prints one JSON object per shape and
accumulation. The losses must be equal. Asserts no time.

    bench/graph_speed.py [--device cuda] [--ranks 1] [--shapes dense sparse ...] [--accumulation 1 4]
                         [--rounds 3] [--build build/release] [--data FOLDER]
"""
import argparse
import json
import pathlib
import statistics
import tempfile

import cpu_vs_fsdp2

WARMUP = 10
STEPS = 60
DENSE = "hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 24, num_attention_heads: 16, num_key_value_heads: 4"
SPARSE = (
    "model_type: mixtral, hidden_size: 1024, intermediate_size: 1024, num_hidden_layers: 12, num_attention_heads: 16, "
    "num_key_value_heads: 4, vocab_size: 256, moe: {num_experts: 8, num_experts_per_tok: 2}"
)
# Of a shape: model, sequence length, and parts of a layer that are replayed, on one rank and on ranks that share experts.
SHAPES = {
    "dense": ("{" + DENSE + ", vocab_size: 256}", 512, "attention,mlp", "attention,mlp"),
    "dense short": ("{" + DENSE + ", vocab_size: 256}", 128, "attention,mlp", "attention,mlp"),
    "dense 128k": ("{" + DENSE + ", vocab_size: 128256}", 512, "attention,mlp", "attention,mlp"),
    "sparse": ("{" + SPARSE + "}", 1024, "attention,router", "attention,router,preprocess"),
}
JOB = """
name: bench
model: {model}
data: {{train: "{data}", validation_fraction: 0, tokenizer: bytes}}
training: {{steps: {steps}, sequence_length: {length}, micro_batch_size: 1, global_batch_size: {batch}, validate_every_steps: 0}}
parallelism: {parallelism}
precision: {{compute: {compute}}}
resources: {{device: {device}}}
graphs: {{scope: "{scope}"}}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = cpu_vs_fsdp2.HERE.parent
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--accumulation", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "release")
    parser.add_argument("--data", type=pathlib.Path, default=root / "schedules")
    args = parser.parse_args()
    on_gpus = args.device == "cuda"
    trainer = args.build / "bin" / ("tandem-trainer-cuda" if on_gpus else "tandem-trainer")
    with tempfile.TemporaryDirectory() as folder:
        for shape in args.shapes:
            model, length, alone, sharing = SHAPES[shape]
            shares = shape == "sparse" and args.ranks > 1
            parallelism = f"{{ranks: {args.ranks}{f', expert: {args.ranks}, schedule: overlap' if shares else ''}}}"
            for accumulation in args.accumulation:
                times = {False: [], True: []}
                losses = set()
                for _ in range(args.rounds):
                    for graphs in times:
                        job = pathlib.Path(folder) / "job.yaml"
                        job.write_text(
                            JOB.format(
                                model=model,
                                data=args.data.resolve(),
                                steps=STEPS,
                                length=length,
                                batch=args.ranks * accumulation,
                                parallelism=parallelism,
                                compute="bf16" if on_gpus else "fp32",
                                device=args.device,
                                scope=(sharing if shares else alone) if graphs else "none",
                            )
                        )
                        bench = [args.build / "bin" / "tandem-bench-step", job, trainer, str(WARMUP)]
                        result = json.loads(cpu_vs_fsdp2.run(bench))
                        times[graphs].append(result["ms_per_step"])
                        losses.add(result["loss"])
                assert len(losses) == 1, f"graphs change the loss of {shape}: {losses}"
                eager, replayed = (statistics.median(times[graphs]) for graphs in (False, True))
                line = {
                    "shape": shape,
                    "ranks": args.ranks,
                    "accumulation": accumulation,
                    "eager_ms": round(eager, 3),
                    "graphs_ms": round(replayed, 3),
                    "speedup": round(eager / replayed, 3),
                }
                print(json.dumps({**line, **cpu_vs_fsdp2.origin(result)}), flush=True)


if __name__ == "__main__":
    main()
