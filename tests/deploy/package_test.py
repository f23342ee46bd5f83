#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package is whole: moved elsewhere, its programs load nothing but libc from outside, and train.

Usage: package_test.py REPOSITORY BUILD
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# Those that must be the machine's, or that every Linux of the age of its libc has.
OF_THE_MACHINE = re.compile(r"^(linux-vdso|ld-linux|lib(c|m|dl|rt|util|pthread|resolv|stdc\+\+|gcc_s)\.so)")
LOADED = re.compile(r"^\s*(\S+)(?: => (\S.*?))? \(0x", re.M)
JOB = """
name: packaged
model: {hidden_size: 64, intermediate_size: 160, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 2,
        head_dim: 32, vocab_size: 256, model_type: llama}
data: {train: %s, tokenizer: bytes}
training: {steps: 3, sequence_length: 64, micro_batch_size: 1, global_batch_size: 4, seed: 1, validate_every_steps: 0}
parallelism: {ranks: 2}
resources: {device: cpu}
"""


def from_elsewhere(program, folder):
    """The libraries that a program would load from outside of `folder`."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    loaded = [(pathlib.Path(name).name, path) for name, path in LOADED.findall(text)]
    assert len(loaded) > 5, text
    assert "not found" not in text, text
    return [path for name, path in loaded
            if not OF_THE_MACHINE.match(name) and not pathlib.Path(path).resolve().is_relative_to(folder)]


def main():
    root, build = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    assert build == root / "build/release", "scripts/package.sh packs build/release"
    with tempfile.TemporaryDirectory(dir=build) as name:  # moved by a rename
        folder = pathlib.Path(name)
        subprocess.run([root / "scripts/package.sh", "--folder", folder / "made"], check=True)
        moved = folder / "moved"
        (folder / "made").rename(moved)
        programs = sorted(path.name for path in (moved / "bin").iterdir())
        assert programs == ["tandem", "tandem-controller", "tandem-trainer", "tandem-worker"], programs
        for program in programs:
            outside = from_elsewhere(moved / "bin" / program, moved)
            assert not outside, f"{program} loads {outside}"
        for file in ("share/tandem/deploy/systemd/tandem-worker.service", "share/tandem/examples/headers.yaml",
                     "share/tandem/deploy/slurm/tandem.sbatch", "share/tandem/deploy/kubernetes/base/worker.yaml",
                     "share/doc/tandem/docs/operations.md", "share/doc/tandem/LICENSE", "share/tandem/python/VERSION",
                     "share/tandem/python/tandem/data/prepare.py", "share/tandem/proto/tandem/v1/job.proto"):
            assert (moved / file).is_file(), file
        done = subprocess.run([moved / "bin/tandem", "data", "prepare"], env={"PATH": ""}, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and f'pip install "{moved}/share/tandem/python[data]"' in done.stderr, done.stderr
        pages = moved / "share/doc/tandem"
        dead = [link for link in re.findall(r"\]\(([^)#]+)", (pages / "README.md").read_text()) if "://" not in link and not (pages / link).exists()]
        assert not dead, f"links of README.md that lead to nothing where it is installed: {dead}"
        (folder / "text").write_text("a line of text\n" * 2000)
        (folder / "job.yaml").write_text(JOB % (folder / "text"))
        done = subprocess.run([moved / "bin/tandem", "run", "-f", folder / "job.yaml"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0 and "SUCCEEDED" in done.stdout, done.stdout + done.stderr
    print(f"{', '.join(programs)}: moved, loaded and trained")


if __name__ == "__main__":
    main()
