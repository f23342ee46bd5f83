# SPDX-License-Identifier: Apache-2.0
"""tandem follow: a real controller or a service with restarts in its history, real MLflow, real wandb (offline)."""
import collections
import csv
import json
import math
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc
import pytest

from cluster import tiny_job, wait_for

JOB = "0123456789ab"


@pytest.fixture(autouse=True)
def messages(bin_dir):
    sys.path[:0] = [str(bin_dir.parents[2] / "python"), str(bin_dir.parent / "proto/gen-python")]
    yield
    del sys.path[:2]


class Restarted:
    """A service with one job, whose reports are `attempts` (lists of steps) as far as they are released."""

    def __init__(self, attempts, job_id=JOB):
        from tandem.v1 import job_pb2, jobs_pb2, jobs_pb2_grpc, report_pb2, state_pb2
        self.all = []
        for attempt, steps in enumerate(attempts, start=1):
            for step in steps:
                report = report_pb2.StepReport(step=step, attempt=attempt, loss=5 / step, grad_norm=math.nan if step == 7 else 1.0,
                                               tokens=512, seconds=0.1, learning_rate=1e-3)
                report.scalars["tokens_per_second"] = 5120.0 + attempt
                if step % 10 == 0:
                    report.scalars["validation_loss/en+fr"] = 6 / step
                self.all.append(report)
        self.changed, self.released, self.state = threading.Condition(), 0, state_pb2.JOB_STATE_RUNNING
        self.at_watch, self.last_step = lambda: None, 0
        outer = self

        def job():
            last = outer.last_step or max([report.step for report in outer.all[:outer.released]], default=0)
            spec = job_pb2.JobSpec(name="restarted")
            spec.parallelism.ranks = 2
            return state_pb2.Job(id=job_id, name="restarted", state=outer.state, resolved=spec, last_step=last, resolved_digest="d1")

        class Jobs(jobs_pb2_grpc.JobsServicer):
            def GetJob(self, _request, _context):
                return job()

            def ListReports(self, request, _context):
                chosen = [report for _, report in sorted(outer.history().items()) if report.step >= request.first_step]
                return jobs_pb2.ListReportsResponse(reports=chosen)

            def Watch(self, _request, context):
                outer.at_watch()
                with outer.changed:
                    sent, last = outer.released, job()
                yield jobs_pb2.WatchResponse(snapshot=last)
                if last.state != state_pb2.JOB_STATE_RUNNING:
                    return
                while context.is_active():
                    with outer.changed:
                        outer.changed.wait_for(lambda: outer.released > sent or outer.state != state_pb2.JOB_STATE_RUNNING, 0.1)
                        fresh, sent, last = outer.all[sent:outer.released], outer.released, job()
                    for report in fresh:
                        yield jobs_pb2.WatchResponse(cursor=f"{sent}", report=report)
                    if last.state != state_pb2.JOB_STATE_RUNNING and not fresh:
                        yield jobs_pb2.WatchResponse(cursor="end", changed=last)
                        return

        self.server = grpc.server(futures.ThreadPoolExecutor(8))
        jobs_pb2_grpc.add_JobsServicer_to_server(Jobs(), self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def history(self):
        out = {}
        for report in self.all[:self.released]:
            if report.step not in out or report.attempt >= out[report.step].attempt:
                out[report.step] = report
        return out

    def release(self, number=None, state=None):
        with self.changed:
            self.released = len(self.all) if number is None else min(self.released + number, len(self.all))
            self.state = state or self.state
            self.changed.notify_all()


@pytest.fixture
def follow(bin_dir, tmp_path):
    """follow(address, JOB, *options) is the running command."""
    running = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "WANDB_"))}

    def start(address, *words):
        said = tmp_path / f"said-{len(running)}"
        with open(said, "w") as file:
            running.append(subprocess.Popen([bin_dir / "tandem", "--addr", address, "follow", *map(str, words)], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=file, cwd=tmp_path, env=environment))
        running[-1].said = said
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def ended(process):
    """Exit code, standard error."""
    return process.wait(timeout=300), process.said.read_text()


def began(process):
    wait_for("it says that it began", lambda: "the rest goes to" in process.said.read_text() or process.poll() is not None)
    assert process.poll() is None, process.said.read_text()


def rows(path):
    text = path.read_bytes()
    assert text.endswith(b"\n")
    return list(csv.DictReader(text.decode().splitlines()))


def equal(row, report):
    return (int(row["step"]), int(row["attempt"]), row["loss"], row["grad_norm"], row["tokens_per_second"]) == (
        report.step, report.attempt, repr(report.loss), repr(report.grad_norm), repr(report.scalars["tokens_per_second"]))


RESTARTS = [range(1, 200), range(150, 260), range(230, 300), range(280, 401)]


def test_csv_has_the_metrics_and_exit_code(start, follow):
    cluster = start()
    name = cluster.submit(tiny_job("followed", steps=25, validate_every_steps=10))
    code, error = ended(follow(cluster.address, name, "--to", "csv"))
    assert code == 0, error
    folder = cluster.folder / name
    found, reported = rows(folder / "metrics.csv"), cluster.reports(name)
    assert [int(row["step"]) for row in found] == [report["step"] for report in reported] == list(range(26))
    for row, report in zip(found, reported):
        names = set(report) - {"step", "attempt"} if report["step"] else {"validation_loss"}
        assert names <= set(row), (names, row)
        assert all(float(row[name]) == report[name] for name in names if isinstance(report[name], (int, float))), (row, report)
    about = json.loads((folder / "run.json").read_text())
    assert about["configuration"]["parallelism.fsdp.strategy"] == "zero3" and about["configuration"]["training.steps"] == "25"
    assert about["run"]["configuration_digest"] and about["run"]["program_digest"]

def test_norms_are_live_and_cancellation_exits_with_130(start, follow):
    cluster = start(workers=1)
    name = cluster.submit(tiny_job("endless", ranks=1, steps=1_000_000))
    process = follow(cluster.address, name, "--to", "csv", "--out", "x", "--norms-every", 5)
    path = cluster.folder / "x/norms.csv"
    wait_for("norms", lambda: path.exists() and path.stat().st_size > 2000)
    cluster.cli("cancel", name)
    code, error = ended(process)
    assert code == 130 and "CANCELLED" in error
    norms = rows(path)
    assert {int(row["step"]) % 5 for row in norms} == {0} and all(float(row["weight"]) > 0 for row in norms)
    assert len(norms) <= 20 * len({row["step"] for row in norms})


def test_csv_survives_restarts_and_twenty_kills(follow, tmp_path):
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    dice, service, path = random.Random(seed), Restarted(RESTARTS), tmp_path / "out/metrics.csv"
    for _ in range(20):
        process = follow(service.address, JOB, "--to", "csv", "--out", "out")
        service.release(dice.randrange(5, 40))
        newest = service.all[service.released - 1]
        wait_for("it is written", lambda: path.exists() and f"\n{newest.step},{newest.attempt},".encode() in path.read_bytes())
        service.release(dice.randrange(1, 10))
        time.sleep(dice.random() * 0.01)  # somewhere in what follows
        process.kill()
        process.wait()
    service.release(state=7)  # JOB_STATE_SUCCEEDED
    assert ended(follow(service.address, JOB, "--to", "csv", "--out", "out"))[0] == 0
    found, wanted = rows(path), sorted(service.history().items())
    assert len(found) == len(wanted) == 400
    assert all(equal(row, report) for row, (_, report) in zip(found, wanted))
    assert found[9]["validation_loss/en+fr"] == "0.6" and found[8]["validation_loss/en+fr"] == ""


def test_half_line_of_a_killed_writer_is_removed(follow, tmp_path):
    service = Restarted([range(1, 30)])
    service.release(state=7)
    assert ended(follow(service.address, JOB, "--to", "csv", "--out", "out"))[0] == 0
    path = tmp_path / "out/metrics.csv"
    whole = path.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert ended(follow(service.address, JOB, "--to", "csv", "--out", "out"))[0] == 0
        assert path.read_bytes() == whole


def test_it_waits_for_reports_after_the_end(follow, tmp_path):
    service = Restarted([range(1, 30)])
    service.release(20)
    service.last_step = 29
    service.release(0, state=7)
    process = follow(service.address, JOB, "--to", "csv", "--out", "out")
    path = tmp_path / "out/metrics.csv"
    wait_for("the first", lambda: path.exists() and path.read_bytes().count(b"\n") == 21)
    time.sleep(3)  # longer than the client looks for them
    service.release()
    code, error = ended(process)
    assert code == 0 and "does not have the last one" not in error
    assert [int(row["step"]) for row in rows(path)] == list(range(1, 30))


def test_ctrl_c_leaves_a_whole_file(follow, tmp_path):
    service = Restarted([range(1, 300)])
    service.release(100)
    process = follow(service.address, JOB, "--to", "csv", "--out", "out")
    wait_for("some rows", lambda: (tmp_path / "out/metrics.csv").exists() and len((tmp_path / "out/metrics.csv").read_bytes()) > 500)
    service.release(50)
    process.send_signal(signal.SIGINT)
    code, error = ended(process)
    assert code == 130 and "interrupted" in error
    assert [int(row["step"]) for row in rows(tmp_path / "out/metrics.csv")] == list(range(1, len(rows(tmp_path / "out/metrics.csv")) + 1))


def test_folders_and_options_that_conflict_are_refused(follow, tmp_path):
    service = Restarted([range(1, 5)])
    service.release()
    first = follow(service.address, JOB, "--to", "csv", "--out", "out")
    path = tmp_path / "out/metrics.csv"
    wait_for("rows", lambda: path.exists() and path.read_bytes().count(b"\n") == 5)
    code, error = ended(follow(service.address, JOB, "--to", "csv", "--out", "out"))
    assert code == 1 and "another tandem follow writes there" in error
    first.kill()
    first.wait()
    other = Restarted([range(1, 5)], job_id="ba9876543210")
    other.release(state=7)
    code, error = ended(follow(other.address, "ba98", "--to", "csv", "--out", "out"))
    assert code == 1 and f"it has the reports of job {JOB}; name another folder" in error
    code, error = ended(follow(service.address, JOB, "--to", "csv", "--offline"))
    assert code == 1 and "--offline is for mlflow and wandb" in error
    code, error = ended(follow(service.address, JOB, "--to", "mlflow", "--out=-m"))
    assert code == 1 and "set MLFLOW_TRACKING_URI, or use --offline" in error
    (tmp_path / "-c").mkdir()
    (tmp_path / "-c/metrics.csv").write_text("mine")
    code, error = ended(follow(service.address, JOB, "--to", "csv", "--out=-c"))
    assert code == 1 and "tandem follow did not write this file" in error and (tmp_path / "-c/metrics.csv").read_text() == "mine"


def test_address_without_a_controller_exits_with_6(follow):
    code, error = ended(follow("127.0.0.1:9", JOB, "--to", "csv"))
    assert code == 6 and error.startswith(f"tandem: follow {JOB}: ") and error.count("\n") == 1, error


def points_of(path):
    import mlflow
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("lab").experiment_id])
    assert len(runs) == 1
    names = runs[0].data.metrics
    return runs[0], {name: [(point.step, point.value) for point in client.get_metric_history(runs[0].info.run_id, name)] for name in names}


def test_mlflow_gets_each_step_once_despite_kills(follow, tmp_path):
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    dice, service = random.Random(seed), Restarted(RESTARTS)
    command = (service.address, JOB, "--to", "mlflow", "--offline", "--project", "lab", "--out", "out")
    for _ in range(5):
        process = follow(*command)
        service.release(80)
        began(process)
        service.release(dice.randrange(1, 20))
        time.sleep(dice.random() * 0.3)  # somewhere in the writes
        process.kill()
        process.wait()
    service.release(state=7)
    assert ended(follow(*command))[0] == 0
    run, points = points_of(tmp_path / "out")
    assert run.info.status == "FINISHED" and run.data.params["parallelism.ranks"] == "2"
    assert run.data.tags["tandem.configuration_digest"] == "d1"
    assert max(collections.Counter(points["attempt"]).values()) == 1
    attempts = collections.Counter(step for step, _ in points["attempt"])
    for name, found in points.items():
        assert all(number <= attempts[step] for step, number in collections.Counter(step for step, _ in found).items()), name
    history = service.history()
    last = dict(points["loss"])
    assert {step: report.loss for step, report in history.items()} == last
    for step, report in history.items():
        assert max(value for at, value in points["attempt"] if at == step) == report.attempt
        assert (step, report.scalars["tokens_per_second"]) in points["tokens_per_second"]
    assert math.isnan(dict(points["grad_norm"])[7])
    assert dict(points["validation_loss/en_fr"])[10] == 0.6


def wandb_rows(path):
    """What wandb.log was given, from the file of an offline run: records in LevelDB's log format behind 7 bytes."""
    from wandb.proto import wandb_internal_pb2
    data, at, out, record = path.read_bytes(), 7, [], b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            message = wandb_internal_pb2.Record.FromString(record)
            record = b""
            if message.WhichOneof("record_type") == "history":
                out.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in message.history.item})
    return out


def test_wandb_offline_has_the_whole_history_each_time(follow, tmp_path):
    service = Restarted(RESTARTS)
    service.release(300)
    process = follow(service.address, JOB, "--to", "wandb", "--offline", "--out", "out")
    began(process)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    service.release(state=7)
    assert ended(follow(service.address, JOB, "--to", "wandb", "--offline", "--out", "out"))[0] == 0
    runs = sorted((tmp_path / "out/wandb").glob(f"offline-run-*-{JOB}/run-{JOB}.wandb"))
    assert len(runs) == 2
    found = [(row["step"], row["attempt"], row["loss"]) for row in wandb_rows(runs[-1]) if "attempt" in row]
    assert found == [(step, report.attempt, report.loss) for step, report in sorted(service.history().items())]


def test_steps_between_history_and_watch_come_once(follow, tmp_path):
    service = Restarted([range(1, 100)])
    service.release(40)
    service.at_watch = lambda: service.release(state=7)  # the job ends just then
    assert ended(follow(service.address, JOB, "--to", "wandb", "--offline", "--out", "out"))[0] == 0
    (run,) = (tmp_path / "out/wandb").glob("offline-run-*/run-*.wandb")
    assert [row["step"] for row in wandb_rows(run) if "attempt" in row] == list(range(1, 100))


def test_wandb_offline_shows_norms(start, follow):
    cluster = start(workers=1)
    name = cluster.submit(tiny_job("shown", ranks=1, steps=1_000_000, sequence_length=1024))  # slower than wandb
    process = follow(cluster.address, name, "--to", "wandb", "--offline", "--norms-every", 2)
    began(process)
    first = int(cluster.job(name).get("last_step", 0))
    wait_for("steps", lambda: int(cluster.job(name).get("last_step", 0)) > first + 20)
    cluster.cli("cancel", name)
    assert ended(process)[0] == 130
    (run,) = (cluster.folder / name / "wandb").glob("offline-run-*/run-*.wandb")
    found = wandb_rows(run)
    steps = [row["step"] for row in found if "attempt" in row]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) > 20
    names = {name for row in found if "attempt" not in row for name in row}
    assert {"norms/top", "norms/log10_gradient"} <= {"/".join(name.split("/")[:2]) for name in names}, names
