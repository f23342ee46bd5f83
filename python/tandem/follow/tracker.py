# SPDX-License-Identifier: Apache-2.0
"""Where the reports of one job go."""
import abc
import contextlib
import fcntl
import os

from tandem.follow.errors import FollowError


class Tracker(abc.ABC):
    """One run of a tracker, or one file. It is opened with what an earlier `tandem follow` wrote; nothing else keeps the
    position. `written`: step → the highest attempt whose report is there. `place`: where it is, for a person. Raises
    FollowError."""

    written: dict
    place: str

    @abc.abstractmethod
    def write(self, reports):
        """Reports that are not there yet, each of a higher step or a higher attempt than what `written` has of it."""

    @abc.abstractmethod
    def write_norms(self, report, norms):
        """`norms`: parameter → (weight, gradient, update)."""

    @abc.abstractmethod
    def describe(self, configuration, facts):
        """The job's fields by their path, and what else is known of it, both as text; called again when they change."""

    @abc.abstractmethod
    def close(self, state):
        """All that was written is kept. `state`: "SUCCEEDED", "FAILED", "CANCELLED", or None if the job has not ended."""


@contextlib.contextmanager
def sole_writer(folder):
    """Makes the folder, and holds it against other programs that follow into it."""
    os.makedirs(folder, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FollowError(f"--out: {folder}: another tandem follow writes there; stop it, or name another folder") from None
        yield
    finally:
        os.close(descriptor)
