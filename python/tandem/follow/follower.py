# SPDX-License-Identifier: Apache-2.0
"""The one loop of `tandem follow`: history first, then reports as they come, until the job has ended."""
import contextlib
import signal
import time

from tandem.follow import facts

MOST_WAITING = 200      # reports that are written at once
WRITE_EVERY = 1.0       # seconds between writes where reports come faster
EXIT_CODES = {"SUCCEEDED": 0, "FAILED": 1, "CANCELLED": 130}
PREEMPTED = 75          # of `tandem watch`, too
CLASS_PREEMPTED = 3     # tandem.v1.FailureClass


class Interrupts:
    """SIGINT and SIGTERM raise KeyboardInterrupt, but the first one not in the middle of a write."""

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
    """Writes the reports of one job into one Tracker, each once. held_back: makes the context of a write, which Ctrl-C
    does not cut in two. clock: seconds that never go back."""

    def __init__(self, client, tracker, norms_every, held_back=contextlib.nullcontext, clock=time.monotonic):
        self._client, self._tracker, self._norms_every = client, tracker, norms_every
        self._held_back, self._clock = held_back, clock
        self._waiting, self._last_write = [], clock()
        self._last_step = -1    # of the newest report that was written or waits
        self._names = []        # of parameters, in the order of norms
        self._described = None

    def run(self, job):
        """Until it has ended; `job` is what it was last. Stops at KeyboardInterrupt; what has come by then is written."""
        self.job = job
        norms = self._norms_every > 0 and job.resolved.report.parameter_norms
        began = False
        try:
            self._describe(job)
            self._catch_up()
            for change in self._client.watch(job.id, reports=True, norms=norms):
                if change.job is not None:
                    self.job = change.job
                    self._describe(change.job)
                    if not began:  # the reports of the watch begin where this job was
                        self._catch_up()
                    began = True
                elif change.table is not None:
                    self._names = [parameter.name for parameter in change.table.parameters]
                elif change.report is not None:
                    self._take(change.report)
                if change.report is None or self._is_time():
                    self._write()
            self._write()
            self._catch_up()  # what a repeated attempt left as it was
        finally:
            self._write()

    def _is_time(self):
        return len(self._waiting) >= MOST_WAITING or self._clock() - self._last_write >= WRITE_EVERY

    def _take(self, report):
        if report.step > self._last_step + 1:  # the watch began anew with a later snapshot
            self._write()
            self._catch_up()
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

    def _catch_up(self):
        """Writes what the controller's history has and the tracker has not."""
        for report in self._client.reports(self.job.id):
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
