# SPDX-License-Identifier: Apache-2.0
"""The version of this package: of the clone that it lies in, or as it was installed."""
import importlib.metadata
import pathlib
import re


def version():
    build = pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt"
    if build.exists():
        found = re.search(r"project\(tandem VERSION ([\d.]+)", build.read_text())
        if found:
            return found.group(1)
    return importlib.metadata.version("tandem-train")
