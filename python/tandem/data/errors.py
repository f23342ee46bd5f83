# SPDX-License-Identifier: Apache-2.0
"""What preparing data fails with."""


class DataError(Exception):
    """One line for the user: what is wrong, where, and what to do."""
