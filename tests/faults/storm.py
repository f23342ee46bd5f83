# SPDX-License-Identifier: Apache-2.0
"""The hostile test's cluster, its victim and the dice."""
from cluster import tiny_job, wait_for

VICTIM = "victim"
CONTROLLER = "controller"
LOST = "the job ended with WorkerLost"
HELD = "the job trained on"


class Storm:
    """The cluster, its victim and the dice. A trick returns what happened, in words that can be counted."""

    def __init__(self, cluster, rng, specs):
        self.cluster, self.rng, self.specs = cluster, rng, specs
        self.number = 0
        self.start_victim()

    def start_victim(self):
        self.number += 1
        self.victim = f"{VICTIM}-{self.number}"
        spec = tiny_job(self.victim, ranks=3, steps=10_000_000)
        spec["resources"] = {"ranks_per_worker": 1}
        self.cluster.submit(spec)
        wait_for("the victim trains", lambda: self.cluster.step(self.victim) >= 3)
        self.ranks = self.cluster.all_ranks()

    def end_victim(self):
        if self.cluster.state(self.victim) == "RUNNING":
            self.cluster.cli("cancel", self.victim)
        wait_for("the victim has ended", lambda: self.cluster.job(self.victim).get("ended"))
        self.cluster.check_no_rank_left(self.ranks)
        self.cluster.check_reports(self.victim)

    def trains_on(self):
        self.cluster.check_serves()
        self.cluster.wait_workers()
        self.cluster.check_steps(self.victim)
        return HELD

    def lost(self, worker):
        """The victim has failed since `worker` was away; its ranks are gone, and a new one trains."""
        wait_for("the job fails", lambda: self.cluster.state(self.victim) == "FAILED")
        cause = self.cluster.job(self.victim)["cause"]
        assert (cause["reason"], cause["worker"]) == ("WorkerLost", worker), cause
        self.cluster.wait_workers()
        self.end_victim()
        self.cluster.check_serves()
        self.start_victim()
        return LOST

    def any_worker(self):
        return self.rng.choice(sorted(self.cluster.workers))

    def any_daemon(self):
        return self.rng.choice([CONTROLLER, *sorted(self.cluster.workers)])
