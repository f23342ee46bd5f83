# SPDX-License-Identifier: Apache-2.0
"""Runs the job files of job_files.py with two builds and compares losses, norms, loads of experts and checkpoints."""
import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import random
import shutil
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import job_files  # noqa: E402
import outcomes  # noqa: E402
from cluster import Cluster, wait_for  # noqa: E402

SAVED = 3  # the first run of a job ends here and saves; the second goes on from there
STEPS = 6
ON_GPUS = 12  # jobs
ENDS = ("the job file", "the job's end")  # what is left of a job that did not run to its end


def write_text(folder, seed=5):
    """Files with words of a small language, documents that end with a byte 0, and some bytes that are no text."""
    numbers = random.Random(seed)
    words = ["".join(numbers.choice("abcdefgh") for _ in range(numbers.randrange(1, 7))) for _ in range(300)]
    folder.mkdir()
    for index in range(4):
        parts = []
        for _ in range(120):
            parts.append(" ".join(numbers.choice(words) for _ in range(numbers.randrange(2, 40))).encode())
            parts.append(bytes([0]) if numbers.random() < 0.7 else bytes(numbers.randrange(256) for _ in range(5)))
        (folder / f"{index}.txt").write_bytes(b"".join(parts))


class Build:
    """A controller and workers of one build, and what its jobs have left."""

    def __init__(self, name, bin_dir, folder, text, resumed, device):
        self.name = name
        self.resumed = folder / resumed  # whose checkpoints the second runs go on from
        self.folder = folder / name
        self.text = text
        self.device = device
        self.folder.mkdir()
        self.cluster = Cluster(bin_dir, self.folder, workers=1 if device == "cuda" else 2, slots=2)

    def directory(self, index, run):
        return self.folder / f"job-{index}-{run}"

    def submit(self, index, row, run):
        resume = self.resumed / f"job-{index}-1" / f"step-{SAVED}" if run == 2 else None
        spec = job_files.job(row, f"job-{index}-{run}", self.text, self.directory(index, run),
                             SAVED if run == 1 else STEPS, resume, self.device)
        path = self.folder / f"{spec['name']}.json"
        path.write_text(json.dumps(spec))
        done = self.cluster.cli("submit", "-f", path, check=False)
        return "" if done.returncode == 0 else f"{spec['name']} is refused: {done.stderr.strip()}"

    def outcome(self, index, run):
        """Everything that the run has computed; how it ended, if it has not succeeded."""
        name = f"job-{index}-{run}"
        job = {}

        def has_ended():
            job.update(self.cluster.job(name))
            return job["state"].removeprefix("JOB_STATE_") in ("SUCCEEDED", "FAILED", "CANCELLED")

        wait_for(f"{name} ends", has_ended, 1800)
        if not job["state"].endswith("SUCCEEDED"):
            return {"the job's end": f"{job['state']}: {job.get('cause', {}).get('message', '')}"}
        directory = self.directory(index, run)
        first, last = (1, SAVED) if run == 1 else (SAVED + 1, STEPS)
        found = outcomes.metrics(directory)
        for step in range(first, last + 1):
            norms = self.cluster.cli("norms", name, "--step", step, "-o", "json").stdout
            found |= outcomes.lines_of(norms, step, "norms of", "name")
            if job["resolved"]["model"].get("moe"):
                loads = self.cluster.cli("metrics", name, "--moe", "--step", step, "-o", "json").stdout
                found |= outcomes.lines_of(loads, step, "experts of layer", "layer")
        found |= outcomes.arrays(directory / f"step-{last}")
        if run == 2:
            shutil.rmtree(directory / f"step-{last}")
        return {f"run {run}: {name}": value for name, value in found.items()}

    def run_all(self, rows, barrier):
        """index → outcome of both runs of each job. barrier: where the builds wait for each other between the runs."""
        found = {index: {} for index in rows}
        for run in (1, 2):
            barrier.wait(1800)
            for index, row in rows.items():
                refused = self.submit(index, row, run)
                if refused:
                    found[index]["the job file"] = refused
            for index in rows:
                if "the job file" not in found[index]:
                    found[index] |= self.outcome(index, run)
        return found


def main():
    parser = argparse.ArgumentParser(prog="scripts/same_bits.sh", description=__doc__)
    parser.add_argument("old", type=pathlib.Path, help="folder with the binaries of the old build")
    parser.add_argument("new", type=pathlib.Path, help="folder with the binaries of the new build")
    parser.add_argument("--sample", type=int, default=job_files.JOBS, metavar="N",
                        help=f"run N of the {job_files.JOBS} jobs, evenly spread (default: all)")
    parser.add_argument("--job", type=int, action="append", metavar="I", help="run this job alone; may be repeated")
    parser.add_argument("--resume-old", action="store_true",
                        help="let the new build go on from the old build's checkpoints in the middle of a job")
    parser.add_argument("--gpus", type=int, default=0, metavar="N",
                        help=f"run {ON_GPUS} of the jobs on this machine's GPUs: those of at most N ranks, evenly spread")
    parser.add_argument("--list", action="store_true", help="print the jobs and run none")
    options = parser.parse_args()
    if not 1 <= options.sample <= job_files.JOBS:
        parser.error(f"--sample {options.sample} is not allowed; allowed: 1 to {job_files.JOBS}")
    all_rows = job_files.choose()[0]
    able = [index for index, row in enumerate(all_rows) if not options.gpus or row["ranks"] <= options.gpus]
    count = min(ON_GPUS if options.gpus else options.sample, len(able))
    chosen = options.job or [able[int(i * len(able) / count)] for i in range(count)]
    rows = {index: all_rows[index] for index in chosen}
    if options.list:
        for index, row in rows.items():
            print(f"{index:3}  {job_files.title(row)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="tandem-same-bits-") as name, contextlib.ExitStack() as ends:
        folder = pathlib.Path(name)
        write_text(folder / "text")
        builds = []
        for which in ("old", "new"):
            builds.append(Build(which, getattr(options, which), folder, folder / "text",
                                "old" if options.resume_old else which, "cuda" if options.gpus else "cpu"))
            ends.callback(builds[-1].cluster.close)
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            barrier = threading.Barrier(len(builds))
            old, new = threads.map(lambda build: build.run_all(rows, barrier), builds)
    differ = 0
    compared = 0
    for index, row in rows.items():
        compared += len(old[index])
        found = outcomes.differences(old[index], new[index])
        failed = [f"{which} build: {text}" for which, left in (("old", old[index]), ("new", new[index]))
                  for name, text in left.items() if name in ENDS]
        if found or failed:
            differ += 1
            print(f"job {index} ({job_files.title(row)}):")
            for line in (failed or found)[:12]:
                print(f"  {line}")
            if len(failed or found) > 12:
                print(f"  and {len(failed or found) - 12} more")
    print(f"{len(rows) - differ} of {len(rows)} jobs have the same bits in both builds ({compared} numbers and arrays compared)")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
