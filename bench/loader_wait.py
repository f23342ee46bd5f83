#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of a step goes into waiting for text: a running job on a mixture of four texts of tokens, documents packed, is
profiled, and the time of its `load` instructions, which wait for the reader's thread and copy, is set beside its steps'.

One line of JSON. Usage, with the tests' Python (scripts/setup.sh --tests):
bench/loader_wait.py FOLDER_OF_BINARIES FOLDER [--steps N]      (FOLDER is new, and is removed)
"""
import argparse
import collections
import json
import pathlib
import random
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402
from test_data import VOCABULARY, write_dataset  # noqa: E402

SHARES = (0.5, 0.3, 0.15, 0.05)


def documents(seed):
    generator = random.Random(seed)
    return [[generator.randrange(VOCABULARY) for _ in range(generator.randrange(50, 2000))] for _ in range(500)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=16)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir()
    (folder / "cluster").mkdir()
    cluster = Cluster(arguments.binaries.resolve(), folder / "cluster", workers=1)
    try:
        spec = tiny_job("mixture", ranks=1, steps=1_000_000, sequence_length=1024, micro_batch_size=4, global_batch_size=16)
        spec["model"].update(vocab_size=VOCABULARY, hidden_size=128, intermediate_size=384, num_attention_heads=4, head_dim=32)
        spec["data"] = {"documents": "packed", "validation_fraction": 0, "sources": [
            {"path": str(write_dataset(folder / f"text-{i}", documents(i))), "weight": share} for i, share in enumerate(SHARES)]}
        cluster.submit(spec)
        wait_for("steps", lambda: cluster.step("mixture") > 4, seconds=300)
        cluster.cli("profile", "mixture", "--steps", arguments.steps, "--trace", folder / "trace.json", timeout=600)
        cluster.cli("cancel", "mixture")
        steps = collections.defaultdict(list)
        for event in json.loads((folder / "trace.json").read_text())["traceEvents"]:
            if event["ph"] == "X":
                steps[event["args"]["step"]].append(event)
        shares = []
        for step in sorted(steps)[:arguments.steps]:  # those behind them ran one instruction at a time
            events = steps[step]
            begin = min(event["ts"] for event in events)
            load = sum(event["dur"] for event in events if event["name"].startswith("load "))
            shares.append((load, max(event["ts"] + event["dur"] for event in events) - begin))
        print(json.dumps({"bench": "loader-wait", "steps": len(shares), "step_seconds": sum(step for _, step in shares) / len(shares) / 1e6,
                          "load_of_step": sum(load for load, _ in shares) / sum(step for _, step in shares),
                          "largest_load_of_step": max(load / step for load, step in shares)}))
    finally:
        cluster.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
