#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of Tandem that a page shows is one that the programs take, and every command is in some page.

A command is a line of a ```sh block, or `code`, that begins with tandem, tandem-controller, tandem-worker or a
script of scripts/. Its subcommand and its options must be in --help (of a script, in its text). What reads a file
of examples/ and nothing else is run.

Usage: commands_in_pages_test.py REPOSITORY FOLDER_OF_BINARIES
"""
import functools
import pathlib
import re
import shlex
import subprocess
import sys

SHELL = re.compile(r"^ *```sh\n(.*?)^ *```$", re.M | re.S)  # those in lists are indented
CODE = re.compile(r"`((?:(?:tandem|tandem-controller|tandem-worker) |scripts/[a-z-]+\.sh)[^`]*)`")
PROGRAMS = ("tandem", "tandem-controller", "tandem-worker")
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "python/README.md", "bench/RESULTS.md")
READS_ONLY = ("validate", "plan", "groups")


def commands(text):
    for block in SHELL.findall(text):
        for line in block.splitlines():
            line = line.split("#")[0].strip()
            if line.split(" ")[0] in PROGRAMS or line.startswith("scripts/"):
                yield line
    yield from CODE.findall(SHELL.sub("", text))


@functools.cache
def help_text(binaries, words):
    done = subprocess.run([binaries / words[0], *words[1:], "--help"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout if done.returncode == 0 else ""


def subcommands(binaries, words=("tandem",)):
    """The commands that --help lists, as words: ("tandem", "get", "jobs")."""
    listed = help_text(binaries, words).partition("Subcommands:\n")[2].partition("\n\n")[0]
    names = re.findall(r"^  ([a-z][a-z-]*)", listed, re.M)
    return [leaf for name in names for leaf in subcommands(binaries, (*words, name))] or [words]


def wrong_script(words, root):
    script = root / words[0]
    if not script.exists():
        return "there is no such script"
    text = script.read_text()
    unknown = [word for word in words[1:] if word.startswith("--") and word.split("=")[0] not in text]
    return f"the script does not know {unknown[0]}" if unknown and '"$@"' not in text else ""


def wrong(command, root, binaries):
    """Why the command is not one that the program takes; empty where it is."""
    words = shlex.split(command)
    if words[0].startswith("scripts/"):
        return wrong_script(words, root)
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
    count, problems, shown = 0, [], ""
    for page in sorted(page for pages in PAGES for page in root.glob(pages)):
        shown += page.read_text()
        for command in commands(page.read_text()):
            count += 1
            if why := wrong(command, root, binaries):
                problems.append(f"{page.relative_to(root)}: {command}: {why}")
    for words in subcommands(binaries):
        # docs/commands.md names further ones of contexts by their last word alone: `tandem context set`, `use`.
        if not re.search(rf"\b{' '.join(words)}\b", shown) and f"`{words[-1]}`" not in shown:
            problems.append(f"no page shows {' '.join(words)}")
    print("\n".join(problems) or f"{count} commands in the pages are ones that the programs take")
    return 1 if problems or count < 20 else 0


sys.exit(main())
