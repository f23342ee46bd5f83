# SPDX-License-Identifier: Apache-2.0
def pytest_addoption(parser):
    parser.addoption("--bin-dir", required=True, help="folder with tandem, tandem-controller, ...")
