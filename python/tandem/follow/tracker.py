# SPDX-License-Identifier: Apache-2.0
"""The interface of the trackers to which `tandem follow` writes the reports of a job."""
import abc
import contextlib
import fcntl
import os

from tandem.follow.errors import FollowError


class Tracker(abc.ABC):
    """One run of a tracker, or one file. Opening it finds what an earlier `tandem follow` wrote, which is the only record of the
    position. `written`: step → the highest attempt whose report it has. `place`: where it is, in messages. Raises FollowError."""

    written: dict
    place: str

    @abc.abstractmethod
    def write(self, reports):
        """Writes new reports: `written` does not have their step, or only with a lower attempt."""

    @abc.abstractmethod
    def write_norms(self, report, norms):
        """Writes norms: parameter → (weight, gradient, update)."""

    @abc.abstractmethod
    def describe(self, configuration, facts):
        """Writes the fields of the job by path, and further facts, both as text. Called again when they change."""

    @abc.abstractmethod
    def close(self, state):
        """Saves everything. `state`: "SUCCEEDED", "FAILED", "CANCELLED", or None if the job has not ended."""


@contextlib.contextmanager
def sole_writer(folder):
    """Makes the folder, and locks it against other `tandem follow`."""
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
