#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is compiled for one instruction set keeps to itself: finds functions of other namespaces in its objects.

The linker keeps one copy of an inline function. A copy that was compiled for a wider instruction set ends every
program on a processor that does not have it.

Usage: instruction_sets_test.py NAMESPACE OBJECT...
"""
import subprocess
import sys

FUNCTIONS = "TtWwi"  # nm's letters of what is code


def strangers(namespace, path):
    lines = subprocess.run(["nm", "--demangle", "--defined-only", "--format=posix", path], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    # NAME LETTER ADDRESS [SIZE], where a demangled name has blanks.
    functions = [line.rsplit(maxsplit=3)[0] for line in lines if line.rsplit(maxsplit=3)[1] in FUNCTIONS]
    if not functions:
        sys.exit(f"{path} has no functions")
    return [name for name in functions if f"{namespace}::" not in name]


def main():
    namespace, *objects = sys.argv[1:]
    found = [f"{path}: {name} lies outside of {namespace}" for path in objects for name in strangers(namespace, path)]
    print("\n".join(found) or f"{len(objects)} object files of {namespace} keep to it")
    return 1 if found or not objects else 0


if __name__ == "__main__":
    sys.exit(main())
