import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))  # cluster.py


def pytest_addoption(parser):
    parser.addoption("--bin-dir", required=True, help="folder with tandem, tandem-controller, ...")
    parser.addoption("--kills", type=int, default=16, help="how many processes test_kills.py kills")
    parser.addoption("--seed", type=int, default=None, help="of the cases; drawn and printed where it is not given")


@pytest.fixture
def bin_dir(request):
    return pathlib.Path(request.config.getoption("--bin-dir")).resolve()
