#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What users run has no failpoints; the variants of the daemons that tests kill have all of them.

Usage: only_in_variants_test.py REPOSITORY BIN VARIANTS
"""
import pathlib
import re
import subprocess
import sys

NAMED = re.compile(r'TANDEM_FAILPOINT\("([^"]+)"\)')
DAEMONS = {"tandem-controller": "controller", "tandem-worker": "worker"}


def main():
    root, programs, variants = map(pathlib.Path, sys.argv[1:])
    problems = []
    for path in sorted(programs.iterdir()):
        released = path.name == "tandem" or path.name.startswith("tandem-")  # tests are named tandem_..._test
        if released and b"failpoint" in path.read_bytes().lower():
            problems.append(f"{path} has failpoints")
    for daemon, folder in DAEMONS.items():
        names = {name for path in (root / folder).rglob("*.cc") for name in NAMED.findall(path.read_text())}
        if not names:
            problems.append(f"no file of {folder}/ names a failpoint; this test looks for nothing")
        released, variant = (programs / daemon).read_bytes(), (variants / daemon).read_bytes()
        problems += [f"{programs / daemon} has {name}" for name in sorted(names) if name.encode() in released]
        problems += [f"{variants / daemon} lacks {name}: is its file in tests/failpoints/CMakeLists.txt?"
                     for name in sorted(names) if name.encode() not in variant]
        asked = subprocess.run([programs / daemon, "--failpoint", "x=kill"], capture_output=True, text=True, timeout=30)
        if asked.returncode == 0 or "--failpoint" in subprocess.run(
                [programs / daemon, "--help"], capture_output=True, text=True, timeout=30).stdout:
            problems.append(f"{programs / daemon} takes --failpoint")
    print("\n".join(problems) or f"no failpoint in {programs}, all of them in {variants}")
    return 1 if problems else 0


sys.exit(main())
