#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory that each file of examples/recipes/ names is that of `tandem plan`, at each of its rank counts.

A recipe says of how many parameters its model is ("# NAME, 8,030,261,248 parameters: ..."), of which device a rank is
("of 79.18 GiB of an H100"), and has rows like these, with what is to be set beside the number of ranks in brackets:

    #    1 rank    does not fit: 12.34 GiB over (parallelism.expert=1)
    #    8 ranks   30.15 GiB

--update writes what the plans say now. A plan of one rank takes seconds, since advice plans what could make it fit:
with --sample only one recipe, drawn at random, is planned at one rank.

Usage: recipes_test.py REPOSITORY FOLDER_OF_BINARIES [--update | --sample [SEED]]
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys

PARAMETERS = re.compile(r"^# .*?, ([\d,]+) parameters", re.M)
DEVICE = re.compile(r"of ([\d.?]+) GiB of an ([A-Z]+\d+)")
ROW = re.compile(r"^(#\s+(\d+) ranks?\s+)([^(\n]*?)((?: \(.*\))?)$", re.M)
RANKS = [1, 8, 64]
GIB = 1 << 30


def plan(binaries, path, device, ranks, settings):
    words = [f"parallelism.ranks={ranks}", *settings]
    done = subprocess.run([binaries / "tandem", "plan", "-f", path, "--profile", device.lower(), "-o", "json",
                           *(word for setting in words for word in ("--set", setting))], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{path} {words}: {done.stderr}")
    return json.loads(done.stdout)


def figure(planned):
    """What a rank needs, its arena and what is beside it, or by how much that is more than the device has."""
    needed = planned["memory"]["arena_bytes"] + planned["prediction"]["outside_bytes"]
    over = needed - planned["prediction"]["profile"]["memory_bytes"]
    return f"does not fit: {over / GIB:.2f} GiB over" if over > 0 else f"{needed / GIB:.2f} GiB"


def as_planned(path, binaries, pool, at_one_rank=True):
    """The text of the recipe with the figures of its plans."""
    text = path.read_text()
    device = DEVICE.search(text)[2]
    rows = list(ROW.finditer(text))
    if [int(row[2]) for row in rows] != RANKS:
        raise SystemExit(f"{path}: its rows are not of {RANKS} ranks")
    rows = [row for row in rows if at_one_rank or row[2] != "1"]
    plans = pool.map(lambda row: plan(binaries, path, device, row[2], [word.strip() for word in row[4].strip(" ()").split(",") if word]), rows)
    for row, planned in zip(reversed(rows), reversed(list(plans))):
        text = text[:row.start()] + row[1] + figure(planned) + row[4] + text[row.end():]
        memory = planned["prediction"]["profile"]["memory_bytes"] / GIB
        parameters = planned["model"]["parameters"]
    text = DEVICE.sub(f"of {memory:.2f} GiB of an {device}", text)
    said = PARAMETERS.search(text)
    return text[:said.start(1)] + f"{parameters:,}" + text[said.end(1):]


def main():
    root, binaries = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    paths = sorted((root / "examples/recipes").glob("*.yaml"))
    if not paths:
        raise SystemExit("there is no recipe")
    sampled = paths
    if "--sample" in sys.argv[3:]:
        seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.SystemRandom().randrange(1 << 32)
        sampled = [random.Random(seed).choice(paths)]
        print(f"seed {seed}: one rank of {sampled[0].name}")
    differ = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path in paths:
            now = as_planned(path, binaries, pool, path in sampled)
            if now == path.read_text():
                continue
            if "--update" in sys.argv[3:]:
                path.write_text(now)
                continue
            differ += 1
            for old, new in zip(path.read_text().splitlines(), now.splitlines()):
                if old != new:
                    print(f"{path}:\n  has      {old}\n  planned  {new}")
    if differ:
        raise SystemExit(f"{differ} recipes differ from their plans; run {sys.argv[0]} {sys.argv[1]} {sys.argv[2]} --update")
    print(f"{len(paths)} recipes at {RANKS} ranks")


if __name__ == "__main__":
    main()
