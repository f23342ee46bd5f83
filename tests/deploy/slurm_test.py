#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/slurm under a real Slurm: a job on two workers is preempted, then near its time limit, each time ends with 75,
is queued again and resumes, and ends with the bits of one that nobody disturbed; one that is cancelled stays cancelled; one
that never started is not queued again, and a taken port is no obstacle.

Usage: slurm_test.py REPOSITORY BUILD
"""
import hashlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

from slurm_cluster import Slurm

STEPS = 1000  # it is not done before Slurm takes the machines back, however late it does


def job(folder, name, steps=STEPS, ranks=2):
    """The path of a job that saves nothing before its end, unless somebody asks for it."""
    spec = {
        "name": name,
        "model": {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 2,
                  "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256, "model_type": "llama"},
        "data": {"train": str(folder / "text"), "tokenizer": "bytes"},
        "training": {"steps": steps, "sequence_length": 64, "micro_batch_size": 2, "global_batch_size": 4 * ranks, "seed": 7,
                     "validate_every_steps": 0},
        "parallelism": {"ranks": ranks, "fsdp": {"strategy": "zero3"}},
        "resources": {"device": "cpu", "ranks_per_worker": 1},
        "checkpoint": {"directory": str(folder / name), "every_steps": 10 * steps},
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(spec))
    return path


def losses(directory):
    """What metrics.jsonl says of every step, without what depends on the clock."""
    path = directory / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(line["step"], line["loss"], line["grad_norm"]) for line in lines]


def saved(directory):
    return sorted(int(path.name.removeprefix("step-")) for path in directory.glob("step-*"))


def weights(directory, step=STEPS):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (directory / f"step-{step}").iterdir() if path.name != "manifest.json"}


class Batch:
    """A job of Slurm that runs deploy/slurm/tandem.sbatch."""

    def __init__(self, slurm, folder, name, command, partition="low"):
        self.slurm = slurm
        self.directory = folder / name
        self.log = folder / f"{name}.out"
        self.id = slurm("sbatch", "--parsable", "--nodes=2", "--exclusive", f"--partition={partition}", f"--chdir={folder}",
                        f"--output={self.log}", *command)

    def wait_for_steps(self, more):
        first = len(losses(self.directory))
        self.slurm.wait(f"{self.directory.name} makes {more} steps", lambda: len(losses(self.directory)) >= first + more)

    def wait_for_end(self, start):
        self.slurm.wait(f"start {start} ends with 75", lambda: re.search(f"start {start}: exit 75", self.log.read_text()))

    def state(self):
        return self.slurm.job(self.id)["JobState"]

    def wait_state(self, state):
        self.slurm.wait(f"{self.directory.name} is {state}", lambda: self.state() == state)


def main():
    root, binaries = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "bin"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text").write_bytes((root / "README.md").read_bytes() * 50)

        def command(path):
            return [root / "deploy/slurm/tandem.sbatch", "--bin", binaries, path, "--", "--slots", 1]

        # The name of a directory service's user, which is none for a certificate.
        (folder / "bin").mkdir()
        (folder / "bin/id").write_text("#!/bin/sh\n[ \"$*\" != -un ] || exec printf '%s\\n' 'LAB\\ada lovelace'\nexec /usr/bin/id \"$@\"\n")
        (folder / "bin/id").chmod(0o755)
        with Slurm(folder / "slurm") as slurm:
            slurm.env["PATH"] = f"{folder}/bin:{slurm.env['PATH']}"  # of the batch jobs
            batch = Batch(slurm, folder, "disturbed", command(job(folder, "disturbed")))
            try:
                batch.wait_for_steps(20)
                urgent = Batch(slurm, folder, "urgent", ["--wrap=sleep 1"], "high")
                batch.wait_for_end(start=1)
                urgent.wait_state("COMPLETED")
                batch.wait_for_steps(20)
                slurm("scancel", "--batch", "--signal=USR1", batch.id)  # as before the time limit
                batch.wait_for_end(start=2)
                batch.wait_state("COMPLETED")
                first, second, last = saved(batch.directory)
                assert 20 <= first < second < last == STEPS, (first, second, last)
                assert slurm.job(batch.id)["Restarts"] == "2"
                assert (folder / f"tandem-{batch.id}/certs/user-LAB_ada_lovelace.crt").exists()

                cancelled = Batch(slurm, folder, "cancelled", command(job(folder, "cancelled", steps=1_000_000)))
                cancelled.wait_for_steps(20)
                slurm("scancel", cancelled.id)
                cancelled.wait_state("CANCELLED")
                assert len(saved(cancelled.directory)) == 1, "what was trained is saved"
                assert "back to Slurm's queue" not in cancelled.log.read_text()

                with socket.create_server(("127.0.0.1", 20000 + (int(cancelled.id) + 1) % 10000)):  # the next job's
                    hopeless = Batch(slurm, folder, "hopeless", command(job(folder, "hopeless", ranks=3)))
                    slurm.wait("it is submitted at another port", lambda: re.search("job [0-9a-f]+ of the controller at",
                                                                                    hopeless.log.read_text() if hopeless.log.exists() else ""))
                assert "Address already in use" in hopeless.log.read_text()
                slurm("scancel", "--batch", "--signal=USR1", hopeless.id)  # its time is over
                hopeless.wait_state("FAILED")
                assert "the job never started" in hopeless.log.read_text()
                assert slurm.job(hopeless.id)["Restarts"] == "0"
            except AssertionError:
                for log in folder.glob("*.out"):
                    print(f"{log.name}:\n{log.read_text()}")
                raise
        subprocess.run([binaries / "tandem", "run", "--workers", "2", "--slots", "1", "-f", job(folder, "undisturbed")], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=300, env={**os.environ, "XDG_STATE_HOME": name})
        assert losses(folder / "disturbed") == losses(folder / "undisturbed")
        assert weights(folder / "disturbed") == weights(folder / "undisturbed") != {}
        print(f"preempted after step {first}, at its time limit after step {second}, done after {last}: the same bits")


if __name__ == "__main__":
    main()
