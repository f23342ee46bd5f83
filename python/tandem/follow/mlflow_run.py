# SPDX-License-Identifier: Apache-2.0
"""`--to mlflow`: each job is a run of MLflow, which has the tag tandem.job_id."""
import logging
import os
import re
import sys
import time

import mlflow
from mlflow.entities import Metric, Param, RunTag

from tandem.follow import facts
from tandem.follow.errors import FollowError
from tandem.follow.tracker import Tracker

MOST_METRICS = 900  # in one call; MLflow allows 1000
MOST_PARAMS = 100   # likewise
LONGEST = 5000      # characters of a tag or a parameter
STATES = {"SUCCEEDED": "FINISHED", "FAILED": "FAILED", "CANCELLED": "KILLED"}


class MlflowRun(Tracker):
    """A repeated step is a second point of the same step. `attempt` is the last metric of a report, so a step that has it is
    complete. Points that a killed writer left of later reports are recognised by their values."""

    def __init__(self, folder, job, project, offline):
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow.store").setLevel(logging.WARNING)
        path = os.path.abspath(folder)
        uri = f"sqlite:///{path}/mlflow.db" if offline else os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            raise FollowError("--to mlflow: no server is named; set MLFLOW_TRACKING_URI, or use --offline for a database in --out")
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        try:
            self._run_id = self._open(job, project, f"file://{path}/artifacts" if offline else None)
        except mlflow.exceptions.MlflowException as error:
            raise FollowError(f"mlflow: {_one_line(error)}") from error
        self.place = f"run {self._run_id} of {project} in {uri}"
        self.written, self._repeated = {}, 0
        for point in self._client.get_metric_history(self._run_id, "attempt"):
            self._repeated += point.step in self.written
            self.written[point.step] = max(int(point.value), self.written.get(point.step, 0))
        self._in_doubt = None  # (name, step, value) of points that may be part of an incomplete report; None: not read yet

    def _open(self, job, project, artifacts):
        experiment = self._client.get_experiment_by_name(project)
        number = experiment.experiment_id if experiment else self._client.create_experiment(project, artifact_location=artifacts)
        runs = self._client.search_runs([number], f"tags.`tandem.job_id` = '{job.id}'", max_results=1)
        if not runs:
            return self._client.create_run(number, run_name=job.name, tags={"tandem.job_id": job.id}).info.run_id
        self._client.update_run(runs[0].info.run_id, status="RUNNING")
        return runs[0].info.run_id

    def write(self, reports):
        if self._in_doubt is None:
            self._in_doubt = self._points_from(min(report.step for report in reports))
        now, points = int(time.time() * 1000), []
        for report in reports:
            own = {**facts.values(report), "attempt": report.attempt}
            found = [Metric(_name(name), float(value), now, report.step) for name, value in own.items()]
            new = [point for point in found if _key(point) not in self._in_doubt or point.key == "attempt"]
            if points and len(points) + len(new) > MOST_METRICS:
                self._log(metrics=points)
                points = []
            points += new
            self._repeated += report.step in self.written
            self.written[report.step] = report.attempt
        if self._repeated:
            self._log(metrics=points, tags=[RunTag("tandem.repeated_steps", str(self._repeated))])
        else:
            self._log(metrics=points)

    def write_norms(self, report, norms):
        shown = {"step": report.step, "attempt": report.attempt,
                 "top": [dict(zip(("parameter", "weight", "gradient", "update"), row)) for row in facts.top(norms)],
                 "log10_histograms": {kind: {"counts": counts, "edges": edges} for kind, (counts, edges) in facts.histograms(norms).items()}}
        self._client.log_dict(self._run_id, shown, f"norms/step-{report.step}.json")

    def describe(self, configuration, known):
        there = self._client.get_run(self._run_id).data.params
        new = [Param(_name(path), value[:LONGEST]) for path, value in configuration.items() if _name(path) not in there and value]
        for begin in range(0, len(new), MOST_PARAMS):
            self._log(params=new[begin:begin + MOST_PARAMS])
        self._log(tags=[RunTag(f"tandem.{name}", value[:LONGEST]) for name, value in known.items()])

    def close(self, state):
        if state is not None:
            self._client.set_terminated(self._run_id, STATES[state])

    def _points_from(self, step):
        names = [name for name in self._client.get_run(self._run_id).data.metrics if name != "attempt"]
        return {_key(point) for name in names for point in self._client.get_metric_history(self._run_id, name) if point.step >= step}

    def _log(self, **what):
        try:
            self._client.log_batch(self._run_id, synchronous=True, **what)
        except mlflow.exceptions.MlflowException as error:
            raise FollowError(f"mlflow: {_one_line(error)}; the same command goes on behind what is there") from error


def _key(point):
    most = sys.float_info.max  # databases hold no infinity
    return point.key, point.step, repr(max(-most, min(most, point.value)) if point.value == point.value else point.value)


def _name(name):
    """Replaces the characters that MLflow does not allow in a name: the plus in validation_loss/en+fr becomes an underscore."""
    return "/".join("_" if part in ("", ".", "..") else re.sub(r"[^\w.\- :]", "_", part) for part in name.split("/"))


def _one_line(error):
    return " ".join(str(error).split())
