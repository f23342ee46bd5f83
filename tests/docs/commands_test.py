#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every output in docs/ is what the command above it prints.

A block ```console holds commands ("$ tandem ...") and their output. They run in docs/ with the built binaries;
a line "..." stands for any number of lines. --update writes what the commands print now, elisions kept.

Usage: commands_test.py REPOSITORY FOLDER_OF_BINARIES [--update]
"""
import difflib
import os
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


def run(command, docs, binaries):
    done = subprocess.run(command, shell=True, cwd=docs, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}, timeout=60)
    return [line.rstrip() for line in done.stdout.rstrip().splitlines()]


def elided(expected, printed):
    """The printed lines with those that `...` stands for elided, or None where the rest differs."""
    if "..." not in expected:
        return None if expected != printed else printed
    at = expected.index("...")
    head, tail = expected[:at], expected[at + 1:]
    if printed[:at] != head:
        return None
    for start in range(at, len(printed) + 1):
        rest = elided(tail, printed[start:])
        if rest is not None:
            return [*head, "...", *rest]
    return None


def check(block, docs, binaries, failures):
    """The block as the commands print it now."""
    out = []
    for part in re.split(r"^(?=\$ )", block, flags=re.M):
        if not part.strip():
            continue
        command, *expected = part.rstrip("\n").split("\n")
        printed = run(command[2:], docs, binaries)
        now = elided(expected, printed)
        if now is None:
            failures.append((command, list(difflib.unified_diff(expected, printed, "docs", "printed", lineterm=""))))
        out += [command, *(printed if now is None else now)]
    return "\n".join(out) + "\n"


def main():
    docs = pathlib.Path(sys.argv[1]).resolve() / "docs"
    binaries = pathlib.Path(sys.argv[2]).resolve()
    update = "--update" in sys.argv[3:]
    failures, commands = [], 0
    for page in sorted(docs.glob("*.md")):
        text = page.read_text()
        commands += sum(block.count("$ ") for block in BLOCK.findall(text))
        new = BLOCK.sub(lambda m: f"```console\n{check(m.group(1), docs, binaries, failures)}```", text)
        if update:
            page.write_text(new)
    for command, diff in failures:
        print(f"{command}\n" + "\n".join(diff) + "\n")
    if update:
        print(f"{len(failures)} of {commands} outputs rewritten")
        return 0
    print(f"{commands - len(failures)} of {commands} outputs in docs/ are what the commands print")
    if commands == 0:
        print("no command found: the test would prove nothing")
    return 1 if failures or commands == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
