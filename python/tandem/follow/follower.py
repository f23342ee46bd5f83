# SPDX-License-Identifier: Apache-2.0
"""The loop of `tandem follow`: it writes the history first, then reports as they arrive, until the job has ended."""
import contextlib
import logging
import queue
import signal
import threading
import time

from tandem.errors import Unreachable
from tandem.follow import facts

LOG = logging.getLogger("tandem")

MOST_WAITING = 200      # reports that are written at once
WRITE_EVERY = 1.0       # seconds between writes, if reports arrive faster
LATE = 60.0             # seconds after a job's success in which its last reports may arrive
LATE_OF_OTHERS = 3.0    # of a job that did not succeed: its last step may have no report
PAUSE = 0.5             # seconds between looks for late reports, or for a controller that is away
EXIT_CODES = {"SUCCEEDED": 0, "FAILED": 1, "CANCELLED": 130}
PREEMPTED = 75          # of `tandem watch`, too
CLASS_PREEMPTED = 3     # tandem.v1.FailureClass


class Interrupts:
    """Raises KeyboardInterrupt on SIGINT and SIGTERM; the first signal during a write takes effect after it."""

    def __init__(self):
        self._writing = self._came = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    @contextlib.contextmanager
    def held_back(self):
        self._writing = True
        try:
            yield
        finally:
            self._writing = False
        if self._came:
            raise KeyboardInterrupt

    def _take(self, *_):
        again, self._came = self._came, True
        if again or not self._writing:
            raise KeyboardInterrupt


class Follower:
    """Writes each report of one job once into a Tracker. held_back() is a context in which Ctrl-C does not interrupt a write.
    clock: seconds that never go back."""

    def __init__(self, client, tracker, norms_every, held_back=contextlib.nullcontext, clock=time.monotonic):
        self._client, self._tracker, self._norms_every = client, tracker, norms_every
        self._held_back, self._clock = held_back, clock
        self._waiting, self._last_write = [], clock()
        self._last_step = -1    # of the newest report that was written or waits
        self._names = []        # of parameters, in the order of norms
        self._described = None

    def run(self, job):
        """Follows `job` until it has ended. Stops at KeyboardInterrupt, after it has written what has arrived."""
        self.job = job
        norms = self._norms_every > 0 and job.resolved.report.parameter_norms
        began = False
        try:
            self._describe(job)
            self._catch_up()
            for change in self._changes(norms):
                if change is None:
                    self._write()
                    continue
                if change.job is not None:
                    self.job = change.job
                    self._describe(change.job)
                    if not began:  # the reports of the watch begin where this job was
                        self._catch_up(self._last_step + 1)
                    began = True
                elif change.table is not None:
                    self._names = [parameter.name for parameter in change.table.parameters]
                elif change.report is not None:
                    self._take(change.report)
                if change.report is None or self._is_time():
                    self._write()
            self._catch_up()  # what a repeated attempt left as it was
            deadline = self._clock() + (LATE if facts.state_of(self.job) == "SUCCEEDED" else LATE_OF_OTHERS)
            while self.missing() and self._clock() < deadline:
                time.sleep(PAUSE)
                self._catch_up()
        finally:
            self._write()

    def missing(self):
        """Whether the newest step that is known of the job is not written."""
        return self.job.last_step > 0 and self.job.last_step not in self._tracker.written

    def _changes(self, norms):
        """Those of the watch, and None where none has come for some time."""
        changes, end = queue.Queue(MOST_WAITING), object()

        def read():
            try:
                for change in self._client.watch(self.job.id, reports=True, norms=norms):
                    changes.put(change)
                changes.put(end)
            except BaseException as error:  # raised where the changes are read
                changes.put(error)

        threading.Thread(target=read, daemon=True).start()
        while True:
            try:
                item = changes.get(timeout=WRITE_EVERY)
            except queue.Empty:
                item = None
            if item is end:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def _is_time(self):
        return len(self._waiting) >= MOST_WAITING or self._clock() - self._last_write >= WRITE_EVERY

    def _take(self, report):
        if report.step > self._last_step + 1:  # the watch began anew with a later snapshot
            self._catch_up(self._last_step + 1)
        if self._tracker.written.get(report.step, 0) >= report.attempt:
            return
        self._waiting.append(report)
        self._last_step = report.step
        norms = report.norms
        if (self._norms_every > 0 and report.step % self._norms_every == 0 and self._names
                and len(self._names) == len(norms.weight) == len(norms.gradient) == len(norms.update)):
            self._write()
            with self._held_back():
                self._tracker.write_norms(report, dict(zip(self._names, zip(norms.weight, norms.gradient, norms.update))))

    def _write(self):
        if self._waiting:
            with self._held_back():
                waiting, self._waiting = self._waiting, []
                self._tracker.write(waiting)
        self._last_write = self._clock()

    def _catch_up(self, first_step=0):
        """Writes what the controller's history has from that step on and the tracker has not."""
        self._write()
        said = False
        while True:
            try:
                self._read_history(first_step)
                return
            except Unreachable as error:
                if not said:
                    LOG.warning("the history of job %s is asked for again: %s", self.job.id, error)
                said = True
                time.sleep(PAUSE)

    def _read_history(self, first_step):
        self._write()
        for report in self._client.reports(self.job.id, first_step):
            self._last_step = max(self._last_step, report.step)
            if self._tracker.written.get(report.step, 0) < report.attempt:
                self._waiting.append(report)
                if len(self._waiting) >= MOST_WAITING:
                    self._write()
        self._write()

    def _describe(self, job):
        known = facts.configuration(job), facts.facts(job)
        if known != self._described:
            with self._held_back():
                self._described = known
                self._tracker.describe(*known)


def exit_code(job):
    """What `tandem follow` ends with: the job's status, as of `tandem watch`."""
    state = facts.state_of(job)
    if state == "FAILED" and getattr(job.cause, "class") == CLASS_PREEMPTED:
        return PREEMPTED
    return EXIT_CODES.get(state, 1)
