# SPDX-License-Identifier: Apache-2.0
"""The client: calls of the service for users (jobs.proto)."""
import dataclasses
import json
import logging
import operator
import os
import pathlib
import time
import uuid
from typing import Any, Dict, Iterator, List, Optional

import grpc

from tandem.errors import Refused, TandemError, TimedOut, Unreachable, translated
from tandem.v1 import job_pb2, jobs_pb2, jobs_pb2_grpc, state_pb2

LOG = logging.getLogger("tandem")
ENDED = (state_pb2.JOB_STATE_SUCCEEDED, state_pb2.JOB_STATE_FAILED, state_pb2.JOB_STATE_CANCELLED)
TIMEOUT = 10.0  # seconds that a call may take, except a stream
PLANNED = 180.0  # for a submission: the controller may have to simulate the step first (prefetch: auto), after others
PAUSE = 0.5     # before a broken stream is opened again
PATIENCE = 2.0  # how long to wait for the last reports of a job that has ended


@dataclasses.dataclass
class Change:
    """One item of a watch: one field is set, the others are None."""
    job: Optional[Any] = None       # tandem.v1.Job, as it is now
    event: Optional[Any] = None     # tandem.v1.Event
    report: Optional[Any] = None    # tandem.v1.StepReport
    table: Optional[Any] = None     # tandem.v1.ParameterTable: the order of the norms that follow
    progress: Optional[Any] = None  # tandem.v1.Progress of a job that has not moved for some time


class Client:
    """Calls a controller. `address`: host:port or unix:/path; by default TANDEM_ADDR, else 127.0.0.1:7471. With `ca`, `cert`
    and `key` (paths of PEM files) the connection is mutual TLS; `server_name` is the name in the controller's certificate,
    if that is not the host. Threads may share a Client. It is a context manager."""

    def __init__(self, address=None, *, ca=None, cert=None, key=None, server_name=None):
        self.address = address or os.environ.get("TANDEM_ADDR") or "127.0.0.1:7471"
        # Only pings detect a dead link. The norms of a step of a large model are beyond gRPC's limit of 4 MiB.
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 2000),
                   ("grpc.keepalive_time_ms", 20000), ("grpc.keepalive_timeout_ms", 10000),
                   ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0),
                   ("grpc.max_receive_message_length", 64 << 20)]
        if server_name:
            options.append(("grpc.ssl_target_name_override", server_name))
        if ca or cert or key:
            if not (ca and cert and key):
                raise ValueError("ca, cert and key: all three, or none")
            read = [open(path, "rb").read() for path in (ca, key, cert)]
            self._channel = grpc.secure_channel(self.address, grpc.ssl_channel_credentials(*read), options)
        else:
            self._channel = grpc.insecure_channel(self.address, options)
        self._jobs = jobs_pb2_grpc.JobsStub(self._channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._channel.close()

    def submit(self, job, request_id=None):
        """Submits a job and returns the Job. `job`: a dictionary, the path of a job file (YAML or JSON), or a JobSpec. A second
        call with the same request_id returns the same job. Waits up to three minutes for the answer."""
        return self._call("Submit", _request(job, request_id or f"python-{uuid.uuid4().hex}"), PLANNED)

    def validate(self, job) -> List[Any]:
        """Returns every violation of a spec; none if it would be accepted."""
        return list(self._call("Validate", _request(job)).violations)

    def get(self, job):
        """Returns the Job with this id, name, or beginning of an id."""
        return self._call("GetJob", jobs_pb2.GetJobRequest(job=job))

    def jobs(self, states=()) -> Iterator[Any]:
        """Returns jobs, newest first; `states`: names like "RUNNING". Raises ValueError for an unknown name."""
        numbers = [_state_number(name) for name in states]
        return self._pages("ListJobs", jobs_pb2.ListJobsRequest(states=numbers), "jobs")

    def workers(self) -> Iterator[Any]:
        return self._pages("ListWorkers", jobs_pb2.ListWorkersRequest(), "workers")

    def events(self, job="", after_seq=0) -> Iterator[Any]:
        """Returns the events of a job, or without one of all jobs and workers, oldest first."""
        return self._pages("ListEvents", jobs_pb2.ListEventsRequest(job=job, after_seq=after_seq), "events")

    def cancel(self, job, reason="", checkpoint=False):
        """Stops a job. checkpoint: save a checkpoint first."""
        return self._call("Cancel", jobs_pb2.CancelRequest(job=job, reason=reason, checkpoint=checkpoint))

    def checkpoint(self, job):
        """Requests a checkpoint. It is done when `get(job).checkpoints.answered` has reached `checkpoints.requested` of the
        result."""
        return self._call("Checkpoint", jobs_pb2.CheckpointRequest(job=job))

    def watch(self, job, reports=False, norms=False, timeout=None) -> Iterator[Change]:
        """Yields the job as it is, then its changes, until it has ended; the last one is the job that has ended. Continues where
        the stream broke, also after a restart of the controller: every change comes exactly once. The log `tandem` (of
        `logging`) has a warning when the controller goes away, and when it is back. Raises TimedOut if the job has not ended
        `timeout` seconds after the first change is requested, whatever the connection does."""
        request = jobs_pb2.WatchRequest(job=job, reports=reports or norms, norms=norms)
        deadline = None if timeout is None else time.monotonic() + timeout
        began = False
        cut_off = False
        last_step = -1
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                with translated():
                    for response in self._jobs.Watch(request, timeout=left):
                        began = True
                        if cut_off:
                            LOG.warning("the watch of job %s goes on", job)
                            cut_off = False
                        if response.cursor:
                            request.cursor = response.cursor
                        change = _change(response)
                        if change is None:
                            continue
                        if change.job is not None and change.job.state in ENDED:
                            if request.reports:
                                yield from self._rest(change.job, last_step)
                            yield change
                            return
                        last_step = change.report.step if change.report is not None else last_step
                        yield change
            except Unreachable as error:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimedOut(f"job {job} has not ended within {timeout} seconds; it goes on"
                                   + (f"; the controller cannot be reached: {error}" if cut_off else ""),
                                   error.code) from error
                if not began:
                    raise
                if not cut_off:
                    LOG.warning("the watch of job %s was cut off, and is tried again: %s", job, error)
                    cut_off = True
            time.sleep(PAUSE if deadline is None else max(0.0, min(PAUSE, deadline - time.monotonic())))

    def wait(self, job, timeout=None):
        """Returns the Job when it has ended. `timeout`, and a controller that is away, are as for `watch`."""
        last = None
        for change in self.watch(job, timeout=timeout):
            last = change.job or last
        return last

    def reports(self, job, first_step=0, last_step=0, points=0) -> Iterator[Any]:
        """Yields a tandem.v1.StepReport for every reported step, in order; for a repeated step, that of the last attempt. The
        arguments are those of `metrics`."""
        request = jobs_pb2.ListReportsRequest(job=job, first_step=first_step, last_step=last_step, points=points,
                                              page_size=1000)
        return self._pages("ListReports", request, "reports")

    def metrics(self, job, first_step=0, last_step=0, points=0) -> Dict[str, List[Any]]:
        """Returns columns, for a DataFrame, with a row for every reported step: step, loss, grad_norm, learning_rate, tokens,
        seconds, nonfinite, attempt, and every scalar (None if a step lacks it). points: only about so many steps, evenly
        spread."""
        reports = list(self.reports(job, first_step, last_step, points))
        names = ("step", "loss", "grad_norm", "learning_rate", "tokens", "seconds", "nonfinite", "attempt")
        columns = {name: [getattr(report, name) for report in reports] for name in names}
        for scalar in sorted({name for report in reports for name in report.scalars}):
            columns[scalar] = [report.scalars.get(scalar) if scalar in report.scalars else None for report in reports]
        return columns

    def norms(self, job, step) -> Dict[str, Dict[str, float]]:
        """Returns the norms of one step (from 1), parameter → {"weight", "gradient", "update"}; empty if they are no longer
        kept. Raises ValueError for a step before 1, TypeError for one that is not an integer, and TandemError if the call
        fails, or norms and parameters do not match."""
        if operator.index(step) < 1:  # in a request, 0 is any step
            raise ValueError(f"step: {step} is not allowed; it must be an integer ≥ 1")
        page = self._call("ListReports", jobs_pb2.ListReportsRequest(job=job, first_step=step, last_step=step, norms=True))
        if not page.reports or not page.reports[0].norms.weight:
            return {}
        names, norms = [parameter.name for parameter in page.table.parameters], page.reports[0].norms
        if not len(names) == len(norms.weight) == len(norms.gradient) == len(norms.update):
            raise TandemError(f"norms of step {step}: {len(names)} parameters, but {len(norms.weight)} norms of weights, "
                              f"{len(norms.gradient)} of gradients, {len(norms.update)} of updates; controller and client "
                              "may be of different builds, or the job ran under an earlier build")
        return {name: {"weight": weight, "gradient": gradient, "update": update}
                for name, weight, gradient, update in zip(names, norms.weight, norms.gradient, norms.update)}

    def logs(self, job, rank=None, follow=False, tail_lines=0) -> Iterator[Any]:
        """Yields pieces {rank, data} of the output of the ranks of a job, or of one `rank`."""
        request = jobs_pb2.LogRequest(job=job, follow=follow, tail_lines=tail_lines)
        if rank is not None:
            request.rank = rank
        with translated():
            yield from self._jobs.ReadLog(request)

    def _rest(self, job, last_step):
        """Yields the reports after `last_step` of a job that has ended: a worker may send the last ones after its end."""
        deadline = time.monotonic() + PATIENCE
        while True:
            request = jobs_pb2.ListReportsRequest(job=job.id, first_step=last_step + 1, page_size=1000)
            for report in self._pages("ListReports", request, "reports"):
                last_step = report.step
                yield Change(report=report)
            if last_step >= job.last_step or time.monotonic() > deadline:
                return
            time.sleep(PAUSE / 5)

    def _call(self, method, request, timeout=TIMEOUT):
        with translated():
            return getattr(self._jobs, method)(request, timeout=timeout)

    def _pages(self, method, request, field):
        while True:
            page = self._call(method, request)
            yield from getattr(page, field)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _request(job, request_id=""):
    """Returns the request of Submit and Validate. A dictionary is sent as the text of a job file, which the service parses."""
    if isinstance(job, job_pb2.JobSpec):
        return jobs_pb2.SubmitRequest(spec=job, request_id=request_id)
    if not isinstance(job, (dict, str, pathlib.Path)):
        raise Refused(f"a job is a dictionary, the path of a job file, or a JobSpec, but this is a {type(job).__name__}")
    if isinstance(job, dict):
        try:
            text = json.dumps(job, ensure_ascii=False, default=_no_json)
        except (TypeError, ValueError) as error:  # ValueError: it holds itself
            raise Refused(f"job: {error}") from error
    else:
        try:
            text = pathlib.Path(job).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise Refused(f"{job}: it is not UTF-8: {error}") from error
    return jobs_pb2.SubmitRequest(text=text, request_id=request_id)


def _no_json(value):
    raise TypeError(f"{value!r} is a {type(value).__name__}; allowed are text, numbers, true, false, null, lists and dictionaries")


def _state_number(name):
    known = {state.removeprefix("JOB_STATE_"): number for state, number in state_pb2.JobState.items() if number}
    if name not in known:
        raise ValueError(f"states: {name!r} is not allowed; allowed: {', '.join(known)}")
    return known[name]


def _change(response):
    item = response.WhichOneof("item")
    if item in ("snapshot", "changed"):
        return Change(job=getattr(response, item))
    return Change(**{item: getattr(response, item)}) if item in ("event", "report", "table", "progress") else None
