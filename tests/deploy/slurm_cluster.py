# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine, of one controller and some nodes: for root in a container, without munge and cgroups."""
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))  # cluster.py

from cluster import free_port

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
# For so long, 120 s by default, a job that was queued again waits.
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={ports[0]}
# Batch jobs derive ports from their numbers: two of these clusters on one machine must not have the same.
FirstJobId={first_job}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
ReturnToService=2
KillWait=60
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
{more}
"""
NODE = "NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 State=UNKNOWN\n"
PARTITIONS = """
PartitionName=low Nodes={nodes} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=high Nodes={nodes} MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


class Slurm:
    """With it, commands of Slurm work until the end of the `with`, when every process and job of it is gone."""

    def __init__(self, folder, nodes=2, more=""):
        for program in ("slurmctld", "slurmd", "sbatch"):
            if shutil.which(program) is None:
                raise SystemExit(f"there is no {program}: run scripts/setup.sh --tests")
        self.folder = pathlib.Path(folder)
        (self.folder / "state").mkdir(parents=True)
        ports = set()
        while len(ports) < nodes + 1:
            ports.add(free_port())
        ports = sorted(ports)
        host = socket.gethostname()
        self.user = subprocess.check_output(["id", "-un"], text=True).strip()
        conf = CONF.format(host=host, user=self.user, folder=self.folder, ports=ports, more=more,
                           first_job=random.SystemRandom().randrange(1, 1_000_000))
        for number in range(1, nodes + 1):
            (self.folder / f"spool-n{number}").mkdir()
            conf += NODE.format(number=number, host=host, port=ports[number])
        conf += PARTITIONS.format(nodes=f"n[1-{nodes}]")
        (self.folder / "slurm.conf").write_text(conf)
        # Nothing here uses cgroups, and this is the plugin that starts where none are mounted.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.env = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.nodes = nodes
        self.daemons = []

    def __enter__(self):
        self._start("slurmctld", "-D", "-i")
        for number in range(1, self.nodes + 1):
            self._start("slurmd", "-D", "-N", f"n{number}")
        self.wait("the nodes are idle", self.is_idle)
        return self

    def __exit__(self, *_):
        self("scancel", "--signal=KILL", "--full", "--user", self.user, check=False)
        self("scancel", "--user", self.user, check=False)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _start(self, *command):
        log = open(self.folder / f"{command[0]}.out", "ab")
        self.daemons.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def __call__(self, *command, check=True):
        done = subprocess.run([str(word) for word in command], env=self.env, capture_output=True, text=True, timeout=120, check=False)
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def job(self, job):
        """What `scontrol show job` says, by name."""
        return dict(re.findall(r"(\S+?)=(\S*)", self("scontrol", "show", "job", job)))

    def is_idle(self):
        return self("sinfo", "--noheader", "--format", "%t %D", "--partition", "low", check=False) == f"idle {self.nodes}"

    def wait(self, what, condition, seconds=120.0):
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.1)
        return value
