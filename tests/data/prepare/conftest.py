# SPDX-License-Identifier: Apache-2.0
"""Tests of python/tandem/data, in the environment that scripts/setup.sh --data makes."""
import pathlib
import sys


def pytest_addoption(parser):
    parser.addoption("--root", required=True, help="the repository")


def pytest_configure(config):
    sys.path.insert(0, str(pathlib.Path(config.getoption("--root")) / "python"))
