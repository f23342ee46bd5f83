import pathlib

import pytest

from cluster import Cluster


def pytest_addoption(parser):
    parser.addoption("--bin-dir", required=True, help="folder with tandem, tandem-controller, ...")


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
