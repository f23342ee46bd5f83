#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a step with CUDA graphs and without, in one call on one machine.

Shapes that launches bound: "dense" is a decoder of hidden size 1024 and 24 layers with one short sequence a microbatch
and a vocabulary of bytes, so that neither head nor optimizer hides what launches cost; "dense short" has sequences of
128 tokens instead of 512, "dense 128k" a vocabulary of 128,256, "sparse" eight experts a layer, which two ranks share
with --ranks 2. Every round runs a shape without graphs and with them in turn; of each the median over the rounds
counts, and the rounds are printed, since a host's own time varies. Prints one JSON object per shape and accumulation.
The losses must be equal. Asserts no time.

--peers: beside the dense shapes on one GPU, PyTorch FSDP2 (peers/fsdp2_launches.py) with these modes of torch.compile,
in each round; a peer starts once per shape and accumulation, and has nothing to do while another is timed.

    bench/graph_speed.py [--device cuda] [--ranks 1] [--shapes dense sparse ...] [--accumulation 1 4]
                         [--rounds 3] [--build build/release] [--data FOLDER]
                         [--peers default reduce-overhead] [--python PYTHON_WITH_TORCH]
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import cpu_vs_fsdp2

WARMUP = 10
STEPS = 60
PEER_STEPS = 5
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


class Peer:
    """FSDP2 with a shape of DENSE and a mode of torch.compile; it compiles while the next one starts."""

    def __init__(self, python, model, length, accumulation, mode):
        keys = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size"]
        sizes = [re.search(f"{key}: (\\d+)", model).group(1) for key in keys]
        command = [python, cpu_vs_fsdp2.HERE / "peers" / "fsdp2_launches.py", *sizes, str(length), str(accumulation), mode]
        environment = {**os.environ, "MASTER_PORT": str(cpu_vs_fsdp2.free_port())}
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args} ended with {self.process.wait()}")
        return line

    def milliseconds(self):
        print(PEER_STEPS, file=self.process.stdin, flush=True)
        return float(self.read())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


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
    parser.add_argument("--peers", nargs="+", default=[], metavar="MODE")
    parser.add_argument("--python", default=sys.executable)
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
                beside = args.peers if shape.startswith("dense") and args.ranks == 1 and on_gpus else []
                peers = {mode: Peer(args.python, model, length, accumulation, mode) for mode in beside}
                peer_times = {mode: [] for mode in peers}
                for peer in peers.values():
                    assert peer.read() == "ready\n"
                for _ in range(args.rounds):
                    for mode, peer in peers.items():
                        peer_times[mode].append(round(peer.milliseconds(), 3))
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
                        times[graphs].append(round(result["ms_per_step"], 3))
                        losses.add(result["loss"])
                for peer in peers.values():
                    peer.end()
                assert len(losses) == 1, f"graphs change the loss of {shape}: {losses}"
                eager, replayed = (statistics.median(times[graphs]) for graphs in (False, True))
                line = {
                    "shape": shape,
                    "ranks": args.ranks,
                    "accumulation": accumulation,
                    "eager_ms": eager,
                    "graphs_ms": replayed,
                    "speedup": round(eager / replayed, 3),
                    "eager_rounds_ms": times[False],
                    "graphs_rounds_ms": times[True],
                    **({"fsdp2_rounds_ms": peer_times} if peers else {}),
                }
                print(json.dumps({**line, **cpu_vs_fsdp2.origin(result)}), flush=True)


if __name__ == "__main__":
    main()
