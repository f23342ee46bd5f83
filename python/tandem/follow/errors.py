# SPDX-License-Identifier: Apache-2.0
"""What a user can mend."""


class FollowError(Exception):
    """One line: what is wrong, where, and what to do."""
