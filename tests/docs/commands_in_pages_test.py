#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of Tandem that README.md, CONTRIBUTING.md and docs/ show is one that the programs take.

A command is a line of a ```sh block, or `code`, that begins with tandem, tandem-controller or tandem-worker. Its
subcommand and its options must be in --help. What reads a file of examples/ and nothing else is run.

Usage: commands_in_pages_test.py REPOSITORY FOLDER_OF_BINARIES
"""
import functools
import pathlib
import re
import shlex
import subprocess
import sys

SHELL = re.compile(r"^ *```sh\n(.*?)^ *```$", re.M | re.S)  # those in lists are indented
CODE = re.compile(r"`((?:tandem|tandem-controller|tandem-worker) [^`]*)`")
PROGRAMS = ("tandem", "tandem-controller", "tandem-worker")
READS_ONLY = ("validate", "plan", "groups")


def commands(text):
    for block in SHELL.findall(text):
        for line in block.splitlines():
            line = line.split("#")[0].strip()
            if line.split(" ")[0] in PROGRAMS:
                yield line
    yield from CODE.findall(SHELL.sub("", text))


@functools.cache
def help_text(binaries, words):
    done = subprocess.run([binaries / words[0], *words[1:], "--help"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout if done.returncode == 0 else ""


def wrong(command, root, binaries):
    """Why the command is not one that the program takes; empty where it is."""
    words = shlex.split(command)
    sub = []
    for word in words[1:]:
        if not re.fullmatch("[a-z][a-z-]*", word) or not help_text(binaries, (words[0], *sub, word)):
            break
        sub.append(word)
    if words[0] == "tandem" and not sub and not words[1].startswith("-"):
        return f"there is no command {words[1]}"
    known = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", help_text(binaries, (words[0], *sub)) + help_text(binaries, (words[0],))))
    unknown = [word.split("=")[0] for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
    if unknown:
        return f"there is no option {unknown[0]}"
    if sub and sub[0] in READS_ONLY and "examples/" in command:
        done = subprocess.run([binaries / words[0], *words[1:]], cwd=root, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            return f"it fails: {done.stderr.strip()}"
    return ""


def main():
    root, binaries = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    count, problems = 0, []
    for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/*.md"))]:
        for command in commands(page.read_text()):
            count += 1
            if why := wrong(command, root, binaries):
                problems.append(f"{page.relative_to(root)}: {command}: {why}")
    print("\n".join(problems) or f"{count} commands in the pages are ones that the programs take")
    return 1 if problems or count < 20 else 0


sys.exit(main())
