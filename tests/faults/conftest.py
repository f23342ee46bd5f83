# SPDX-License-Identifier: Apache-2.0
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))  # cluster.py


def pytest_addoption(parser):
    parser.addoption("--bin-dir", required=True, help="folder with tandem, tandem-controller, ...")
    parser.addoption("--kills", type=int, default=16, help="how many processes test_kills.py kills")
    parser.addoption("--rounds", type=int, default=1, help="how often test_hostile.py plays each trick")
    parser.addoption("--specs", type=int, default=300, help="how many mutated specs test_hostile.py submits")
    parser.addoption("--tricks", default="", help="those of test_hostile.py to play, by name, with commas; empty: all")
    parser.addoption("--sample", type=int, default=0, help="how many cases of test_clock.py and tricks of test_hostile.py are drawn; 0: all")
    parser.addoption("--full", action="store_true", help="also the cases that are marked so")
    parser.addoption("--seed", type=int, default=None, help="of the cases; drawn and printed where it is not given")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: takes long beside a like case, so CI leaves it to scripts/test.sh --full")
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(1 << 32)


def pytest_collection_modifyitems(config, items):
    if not config.option.full:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("full")])
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    sample = config.option.sample
    print(f"\nseed {config.option.seed}" + (f", a sample of {sample}" if sample else ""))
    if 0 < sample < len(items):
        drawn = random.Random(config.option.seed).sample(items, sample)
        config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
        items[:] = drawn


@pytest.fixture
def bin_dir(request):
    return pathlib.Path(request.config.getoption("--bin-dir")).resolve()
