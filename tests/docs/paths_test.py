#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every file, folder and test that a page names is there: links, and paths and SuiteTest.Names in `code`.

A path that begins with a folder of the repository must exist. In the lists of CONTRIBUTING.md's headings of level 3 a
name without a folder is in the folder that was named last; NAME and KIND stand for what the reader adds.

Usage: paths_test.py REPOSITORY
"""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
TEST = re.compile(r"(\w+Test)\.(\w+)")
DEFINED = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", flags=re.M)
SOURCE = re.compile(r"[\w-]+\.(?:cc|h|cu|cuh|py|proto|md|sh|yaml)|CMakeLists\.txt")


def missing(root, page, tests):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for link in LINK.findall(text):
        if "://" not in link and not (page.parent / link).exists():
            yield f"the link {link}"
    top = {path.name for path in root.iterdir()}
    in_list, folder = False, root
    for line in text.splitlines():
        if line.startswith("#"):
            in_list = page.name == "CONTRIBUTING.md" and line.startswith("### ")
        folder = folder if in_list and not line.startswith("#") else root
        for code in CODE.findall(line):
            test = TEST.fullmatch(code)
            if test and test.groups() not in tests:
                yield f"the test `{code}`"
            if test or not PATH.fullmatch(code):
                continue
            first = code.split("/")[0]
            if re.search("NAME|KIND", code):
                folder = (root / code).parent if first in top else folder
                continue
            if "/" in code and first in top - {"build", "runs"}:
                path = root / code
                folder = path if path.is_dir() else path.parent
                if not path.exists():
                    yield f"`{code}`"
            elif in_list and (SOURCE.fullmatch(code) or "/" in code):
                if not (folder / code).exists() and not (root / code).exists():
                    yield f"`{code}` in {folder.relative_to(root)}/"
                elif "/" in code and (folder / code).exists():
                    folder = (folder / code).parent


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.md"], capture_output=True, text=True, check=False)
    pages = [root / name for name in listed.stdout.split()] or [*root.glob("*.md"), *root.glob("docs/*.md")]
    tests = {test for source in root.glob("tests/**/*.cc") for test in DEFINED.findall(source.read_text())}
    found = [f"{page.relative_to(root)} names {what}, which is not there" for page in pages
             for what in missing(root, page, tests)]
    print("\n".join(found) or f"all paths and tests in {len(pages)} pages are there")
    return 1 if found or not pages else 0


sys.exit(main())
