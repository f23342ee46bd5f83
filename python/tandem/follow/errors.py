# SPDX-License-Identifier: Apache-2.0
"""The error of `tandem follow` that a user can act on."""


class FollowError(Exception):
    """One line: what is wrong, where, and what to do."""
