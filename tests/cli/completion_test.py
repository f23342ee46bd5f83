#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The completion scripts, in the shells that they are for: what each offers for the same unfinished lines.

Usage: completion_test.py PATH_OF_TANDEM
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TANDEM = pathlib.Path(sys.argv[1]).resolve()

# The words before the cursor, the unfinished one last; some that must be offered; some that must not be.
CASES = [
    (["tandem", "sub"], {"submit"}, {"get", "watch"}),
    (["tandem", ""], {"submit", "get", "top", "doctor", "completion"}, {"jobs", "now"}),
    (["tandem", "get", ""], {"jobs", "workers"}, {"submit"}),
    (["tandem", "checkpoint", "n"], {"now"}, {"norms"}),
    (["tandem", "get", "jobs", "-o", ""], {"table", "json", "yaml", "name"}, {"text", "--state"}),
    (["tandem", "get", "jobs", "--state", "RUN"], {"RUNNING"}, {"QUEUED"}),
    (["tandem", "get", "jobs", "--output=ya"], {"yaml"}, {"table", "--state"}),
    (["tandem", "watch", "-o", ""], {"text", "json"}, {"yaml"}),
    (["tandem", "submit", "--fol"], {"--follow"}, {"--wait"}),
    (["tandem", "submit", "-f", "job"], {"job.yaml"}, {"--follow"}),
    (["tandem", "completion", ""], {"bash", "zsh", "fish"}, {"jobs"}),
    (["tandem", "cancel", "head"], {"headers"}, {"other"}),
    (["tandem", "--addr", "unix:/x", "get", "w"], {"workers"}, {"jobs", "wait"}),
    (["tandem", "--addr", "10.0.0.1:7471", "get", ""], {"jobs", "workers"}, {"submit"}),
    (["tandem", "--addr=[::1]:7471", "get", "jobs", "--output=ya"], {"yaml"}, {"table", "submit"}),
    (["tandem", "submit", "--set", "training.steps=5", "--fol"], {"--follow"}, {"--wait"}),
    (["tandem", "foo=sub"], set(), {"submit"}),
]


def run(shell, *arguments, text):
    done = subprocess.run([shell, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PATH": f"{pathlib.Path.cwd()}:{os.environ['PATH']}", "TERM": "dumb", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and not done.stderr, f"{shell}: exit {done.returncode}: {done.stderr}"
    # A value is offered with the option that is one word with it, but for bash.
    return {line.split("\t")[0].strip().rpartition("=")[2] for line in done.stdout.splitlines() if line.strip()}


def quote(word):
    return "'" + word + "'"


def bash(words):
    words = [part for word in words for part in re.split("([=:]+)", word) if part or not word]
    return run("bash", "--norc", text=f"""source completion.bash
COMP_WORDS=({' '.join(map(quote, words))}) COMP_CWORD={len(words) - 1}
_tandem
printf '%s\\n' "${{COMPREPLY[@]}}"
""")


def zsh(words):
    # The widget's own functions only run inside an editor: what the script calls is put in their place, the
    # prefix is matched as the editor would.
    return run("zsh", "-f", text=f"""compdef() {{ }}
compadd() {{ [[ $1 == -- ]] && shift; print -rl -- ${{(M)@:#${{words[CURRENT]}}*}} }}
_describe() {{ local name=$2; local word; for word in ${{(P)name}}; do print -r -- ${{word%%:*}}; done }}
_files() {{ print -rl -- ${{words[CURRENT]}}*(N) }}
compset() {{ true }}
source completion.zsh
words=({' '.join(map(quote, words))}) CURRENT={len(words)}
_tandem
true
""")


def fish(words):
    line = " ".join(words)
    return run("fish", "--no-config", "-c", f"source completion.fish; complete -C {quote(line)}", text="")


def main():
    shells = {"bash": bash, "zsh": zsh, "fish": fish}
    missing = [name for name in shells if not shutil.which(name)]
    assert not missing, f"{missing} are not installed; run scripts/setup.sh --tests"
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in shells:
            script = subprocess.run([TANDEM, "completion", name], capture_output=True, text=True, check=True).stdout
            pathlib.Path(f"completion.{name}").write_text(script)
        # The controller's part: two jobs, and a name that no job has.
        pathlib.Path("tandem").write_text(
            f"#!/bin/sh\n[ \"$*\" = 'get jobs -o name' ] || exec '{TANDEM}' \"$@\"\nprintf '%s\\n' headers other '$(touch expanded)'\n")
        pathlib.Path("tandem").chmod(0o755)
        pathlib.Path("job.yaml").write_text("")
        pathlib.Path("a b.yaml").write_text("")
        assert bash(["tandem", "submit", "-f", "a"]) == {"a b.yaml"}, "a blank in a name ends no word"
        for name, complete in shells.items():
            for words, wanted, unwanted in CASES:
                offered = complete(words)
                if not wanted <= offered or unwanted & offered:
                    wrong.append(f"{name}: {words}: wanted {wanted}, not {unwanted}; offered {sorted(offered)}")
        if pathlib.Path("expanded").exists():
            wrong.append("a shell ran the name of a job")
    print("\n".join(wrong) or f"{len(CASES)} lines are completed in {', '.join(shells)}")
    return 1 if wrong else 0


sys.exit(main())
