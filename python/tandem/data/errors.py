# SPDX-License-Identifier: Apache-2.0
"""The error of `tandem data`."""


class DataError(Exception):
    """One line for the user: what is wrong, where, and what to do."""
