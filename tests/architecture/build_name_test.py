#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A commit changes the build's name, and with it only the programs that say it: nothing else is linked again.

Usage: build_name_test.py BUILD_FOLDER, of CMake's generator Ninja
"""
import collections
import pathlib
import re
import sys

NAME = "build_info.cc.o"  # the object that has the name
USERS = {"bin/tandem", "bin/tandem-controller", "bin/tandem-worker"}
SAY_IT = USERS | {"bin/tandem-trainer", "bin/tandem-trainer-cuda",
                  *(f"bin/tandem-bench-{name}" for name in ("cpu-kernels", "experts", "kernels", "loader", "overlap", "seam", "step")),
                  "bin/tandem-tune-products",
                  "bin/tandem_cuda_test"}  # which has no folder of a build beside it where it runs


def read(text):
    """What each file is an input of (what only comes before something else is not one), and the programs."""
    out, programs = collections.defaultdict(set), set()
    for line in re.sub(r"\$\n *", "", text).splitlines():
        if line.startswith("build "):
            made, rest = line.removeprefix("build ").split(": ", 1)
            if rest.startswith("CXX_EXECUTABLE_LINKER"):
                programs.add(made)
            for name in rest.split(" || ")[0].split()[1:]:
                out[name].update(made.split())
    return out, programs


def main():
    build = pathlib.Path(sys.argv[1])
    used, programs = read((build / "build.ninja").read_text())
    todo = [name for name in used if name.endswith("/" + NAME)]
    if not todo:
        print(f"no {NAME} in {build}/build.ninja: the test would prove nothing")
        return 1
    found = set()
    while todo:
        for name in used[todo.pop()] - found:
            found.add(name)
            todo.append(name)
    linked = found & programs
    for name in sorted(linked - SAY_IT):
        print(f"{name} is linked again after every commit; tandem_binary's SAYS_BUILD is for programs that say the build's name")
    if missing := USERS - linked:
        print(f"not linked again, though they say the build's name: {', '.join(sorted(missing))}")
        return 1
    print(f"{len(linked & SAY_IT)} programs say the build's name")
    return 1 if linked - SAY_IT else 0


if __name__ == "__main__":
    sys.exit(main())
