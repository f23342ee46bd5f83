#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tandem, the controller and the worker say their build in one form, and nothing else.

Usage: version_test.py FOLDER_OF_BINARIES
"""
import pathlib
import subprocess
import sys


def main():
    binaries = pathlib.Path(sys.argv[1])
    said = {name: subprocess.run([binaries / name, "--version"], text=True, check=True, stdout=subprocess.PIPE).stdout
            for name in ("tandem", "tandem-controller", "tandem-worker")}
    builds = (binaries.parent / "build_version").read_text()
    assert all(line == builds for line in said.values()), f"of the build {builds!r}: {said}"


main()
