#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one of the tests of whole installations, drawn by a seed that is printed.

Usage: drawn_test.py REPOSITORY BUILD [SEED]
"""
import os
import pathlib
import random
import sys

INSTALLATIONS = ["pods", "machines", "slurm"]


def main():
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 32)
    drawn = random.Random(seed).choice(INSTALLATIONS)
    print(f"seed {seed}: deploy_{drawn}", flush=True)
    os.execv(sys.executable, [sys.executable, str(pathlib.Path(__file__).with_name(f"{drawn}_test.py")), *sys.argv[1:3]])


if __name__ == "__main__":
    main()
