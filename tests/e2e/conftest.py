# SPDX-License-Identifier: Apache-2.0
import pathlib
import random

import pytest

from cluster import Cluster


def pytest_addoption(parser):
    parser.addoption("--bin-dir", required=True, help="folder with tandem, tandem-controller, ...")
    parser.addoption("--sample", action="store_true", help="of the cases of one test with one `name`, one alone is drawn")
    parser.addoption("--seed", type=int, default=None, help="of the sample; drawn and printed where it is not given")


def pytest_collection_modifyitems(config, items):
    if not config.option.sample:
        return
    seed = random.SystemRandom().randrange(1 << 32) if config.option.seed is None else config.option.seed
    print(f"\nseed {seed}")
    cases = {}
    for item in items:
        name = item.callspec.params.get("name") if hasattr(item, "callspec") else None
        cases.setdefault((item.originalname, name), []).append(item)
    draw = random.Random(seed)
    drawn = [draw.choice(same) if name is not None else same for (_, name), same in cases.items()]
    drawn = {item for each in drawn for item in (each if isinstance(each, list) else [each])}
    config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
    items[:] = [item for item in items if item in drawn]


@pytest.fixture
def bin_dir(request):
    return pathlib.Path(request.config.getoption("--bin-dir")).resolve()


@pytest.fixture
def start(bin_dir, tmp_path):
    """start(folder=".", workers=2, slots=1, metrics="off") gives a Cluster that ends with the test."""
    clusters = []

    def make(folder=".", **arguments):
        (tmp_path / folder).mkdir(exist_ok=True)
        clusters.append(Cluster(bin_dir, tmp_path / folder, **arguments))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()
