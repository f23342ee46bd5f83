# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))  # cluster.py


def pytest_addoption(parser):
    parser.addoption("--bin-dir", required=True, help="folder with tandem, tandem-controller, ...")
    parser.addoption("--kills", type=int, default=16, help="how many processes test_kills.py kills")
    parser.addoption("--rounds", type=int, default=1, help="how often test_hostile.py plays each trick")
    parser.addoption("--specs", type=int, default=300, help="how many mutated specs test_hostile.py submits")
    parser.addoption("--tricks", default="", help="those of test_hostile.py to play, by name, with commas; empty: all")
    parser.addoption("--seed", type=int, default=None, help="of the cases; drawn and printed where it is not given")


@pytest.fixture
def bin_dir(request):
    return pathlib.Path(request.config.getoption("--bin-dir")).resolve()
