#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy, with clang's thread-safety analysis, over what has not passed before.

    scripts/tidy.py CLANG-TIDY [--full]      (scripts/lint.sh calls it)

The torch-free half is checked in the batches of the release build: clang spends its time on headers. Of the rest, where
LibTorch's headers take long, the files with locks are checked, those of a batch at once, and for their locks alone.

What passes is noted in ~/.cache/tandem/tidy, as ccache notes what is compiled: under the version, the arguments and
.clang-tidy, with a digest of every file that clang read. So a run checks what has changed since it passed anywhere on
this machine, and what includes it. The folder of the clone does not matter.

--full checks everything whatever is noted, and each file of the torch-free half alone, as the batches do not.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

TORCH_FREE = "platform link tls config jobspec parallel schedules plan controller worker cli".split()
ROOT = pathlib.Path.cwd()
NOTES = pathlib.Path.home() / ".cache/tandem/tidy"
KEPT_SECONDS = 60 * 86400


def has_lock(path):
    """Whether the file or its own header names a lock: the header declares what the file locks."""
    return any("absl::Mutex" in file.read_text() for file in (path, path.with_suffix(".h")) if file.exists())


def sources_of(entry):
    """What an entry of compile_commands.json compiles: the sources of its batch, or one file."""
    path = pathlib.Path(entry["file"])
    batch = re.findall(r'^#include "(.*)"$', path.read_text(), re.M) if path.suffix == ".cxx" else []
    for source in map(pathlib.Path, batch or [path]):
        if source.is_relative_to(ROOT) and source.is_file():
            yield source.relative_to(ROOT)


def flags_of(words):
    for before, word in zip(words, words[1:]):
        if word.startswith(("-I", "-D", "-std")):
            yield word
        elif before in ("-isystem", "-idirafter"):
            yield before + word


def find_checks(full):
    """Checks as (arguments of clang-tidy, of the compiler, file)."""
    tidy = [f"--header-filter=^{re.escape(str(ROOT))}/({'|'.join(TORCH_FREE)})/"]
    # clang-tidy wants a check of its own too, which costs nothing. The files of a batch are read as headers of its last.
    locks = ["--checks=-*,clang-diagnostic-thread-safety*,bugprone-bad-signal-to-kill-thread", f"--header-filter=^{re.escape(str(ROOT))}/"]
    alone = ["--checks=-*,clang-diagnostic-*,-clang-diagnostic-deprecated-declarations,bugprone-bad-signal-to-kill-thread"]
    flags = {folder: {} for folder in TORCH_FREE}
    for entry in json.loads((ROOT / "build/release/compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        folder = pathlib.Path(words[words.index("-o") + 1]).parts[0]
        if folder in TORCH_FREE and "/gen/" not in entry["file"]:
            flags[folder].update(dict.fromkeys(flags_of(words)))
            yield tidy, [*flags_of(words), "-Wthread-safety"], entry["file"]
        elif folder not in (*TORCH_FREE, "tests") and (locked := [str(source) for source in sources_of(entry) if has_lock(source)]):
            *others, last = locked
            includes = [f"-include{ROOT / other}" for other in others]
            yield locks, [*flags_of(words), "-Wno-everything", "-Wthread-safety", *includes], last
    if full:
        for folder in TORCH_FREE:
            for source in subprocess.run(["git", "ls-files", f"{folder}/*.cc"], check=True, text=True, capture_output=True).stdout.split():
                yield alone, [*flags[folder], "-Wthread-safety"], source


@functools.cache
def digest(path):
    """Of a file's text, in which the clone's folder has no name; empty if there is no such file."""
    try:
        return hashlib.sha256((ROOT / path).read_bytes().replace(str(ROOT).encode(), b".")).hexdigest()
    except OSError:
        return ""


class Notes:
    """What one check has read whenever it passed: files with a line "digest path" for each."""

    def __init__(self, *identity):
        text = json.dumps(identity).replace(str(ROOT), ".")
        self.folder = NOTES / hashlib.sha256(text.encode()).hexdigest()

    def passed(self):
        for note in self.folder.glob("*.read"):
            lines = [line.split(" ", 1) for line in note.read_text().splitlines()]
            if all(digest(path) == wanted for wanted, path in lines):
                os.utime(note)
                return True
        return False

    def add(self, paths):
        text = "".join(f"{digest(path)} {path}\n" for path in sorted(paths))
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / f"{os.getpid()}.new"
        new.write_text(text)
        new.rename(self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.read")

    @staticmethod
    def remove_old():
        for note in NOTES.glob("*/*"):
            if note.stat().st_mtime < time.time() - KEPT_SECONDS:
                note.unlink()


def check(program, version, full, arguments, flags, file):
    """What is wrong with the file, and whether this was found out now."""
    notes = Notes(version, (ROOT / ".clang-tidy").read_text(), arguments, flags, file)
    if not full and notes.passed():
        return "", False
    # -H: names every header that it opens.
    done = subprocess.run([program, "--quiet", "--warnings-as-errors=*", *arguments, file, "--", *flags, "-H"],
                          stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    read, said = {file}, []
    for line in done.stdout.splitlines():
        if header := re.fullmatch(r"\.+ (/.*|\w.*)", line):
            read.add(header[1])
        elif not re.fullmatch(r"\d+ warnings?( and \d+ errors?)? generated\.|Suppressed \d+ .*|Use -header-filter=.*", line):
            said.append(line)
    if done.returncode != 0:
        return "\n".join(said) or f"{file}: clang-tidy exits with {done.returncode}", True
    notes.add(os.path.relpath(path, ROOT) if path.startswith(f"{ROOT}/") else path for path in read)
    return "", True


def main():
    program, full = sys.argv[1], "--full" in sys.argv[2:]
    version = subprocess.run([program, "--version"], check=True, text=True, capture_output=True).stdout
    checks = list(find_checks(full))
    if not checks:
        sys.exit("lint: build/release/compile_commands.json names no file; configure again")
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(lambda one: check(program, version, full, *one), checks))
    wrong = [said for said, _ in results if said]
    Notes.remove_old()
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"lint: {len(checks)} batches and files pass clang-tidy and thread-safety analysis, {sum(now for _, now in results)} checked now")


if __name__ == "__main__":
    main()
