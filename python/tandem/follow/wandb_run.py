# SPDX-License-Identifier: Apache-2.0
"""`--to wandb`: each job is a run of Weights & Biases, with the id of the job.

wandb's own step counter does not accept a repeated step, so the step is an ordinary metric (define_metric). Offline, wandb
ignores `resume`, so each offline run has the whole history; `wandb sync` of a later run replaces an earlier one.
"""
import wandb

from tandem.follow import facts
from tandem.follow.errors import FollowError
from tandem.follow.tracker import Tracker


class WandbRun(Tracker):
    def __init__(self, folder, job, project, offline):
        self.written, self._repeated = {}, 0
        settings = wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True)
        try:
            self._run = wandb.init(project=project, id=job.id, name=job.name, dir=folder, settings=settings,
                                   **({"mode": "offline"} if offline else {"mode": "online", "resume": "allow"}))
            if not offline and self._run.resumed:
                path = f"{self._run.entity}/{self._run.project}/{self._run.id}"
                for row in wandb.Api().run(path).scan_history(keys=["step", "attempt"]):
                    self._note(int(row["step"]), int(row["attempt"]))
        except wandb.errors.Error as error:
            raise FollowError(f"wandb: {' '.join(str(error).split())}; log in with wandb login, or use --offline") from error
        self.place = f"{self._run.settings.sync_dir}, for wandb sync" if offline else self._run.url
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def write(self, reports):
        for report in reports:
            self._run.log({**facts.values(report), "step": report.step, "attempt": report.attempt})
            self._note(report.step, report.attempt)
        if self._repeated:
            self._run.summary["repeated_steps"] = self._repeated

    def write_norms(self, report, norms):
        shown = {f"norms/log10_{kind}": wandb.Histogram(np_histogram=(counts, edges))
                 for kind, (counts, edges) in facts.histograms(norms).items()}
        shown["norms/top"] = wandb.Table(columns=["parameter", "weight", "gradient", "update"], data=[list(row) for row in facts.top(norms)])
        self._run.log({**shown, "step": report.step})

    def describe(self, configuration, known):
        self._run.config.update({**configuration, "tandem": known}, allow_val_change=True)

    def close(self, state):
        self._run.finish(exit_code=0 if state in ("SUCCEEDED", None) else 1)

    def _note(self, step, attempt):
        self._repeated += step in self.written
        self.written[step] = max(attempt, self.written.get(step, 0))
