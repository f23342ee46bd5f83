# SPDX-License-Identifier: Apache-2.0
"""The Python client, as a wheel that is installed, against a real controller."""
import json
import pathlib
import subprocess
import sys
import threading
from concurrent import futures

import grpc
import pytest

from cluster import free_port, tiny_job, wait_for

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
ENDLESS = 1_000_000


@pytest.fixture(scope="session")
def tandem(tmp_path_factory):
    """The module, from a wheel of its own."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(["cp", "-r", PACKAGE, PACKAGE.parent / "proto", PACKAGE.parent / "CMakeLists.txt", folder], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index",
                    "--disable-pip-version-check", "--target", folder / "installed", folder / "python"], check=True)
    sys.path.insert(0, str(folder / "installed"))
    import tandem as module
    import tandem.client
    tandem.client.PATIENCE = 120.0  # of a machine that stands still for seconds
    assert module.__file__.startswith(str(folder))
    return module


def test_job_is_submitted_watched_and_measured_in_columns(start, tandem):
    cluster = start()
    with tandem.Client(cluster.address) as client:
        job = client.submit(tiny_job("python", steps=12), request_id="once")
        assert client.submit(tiny_job("python", steps=12), request_id="once").id == job.id
        changes = list(client.watch(job.id, reports=True, norms=True))
        assert [change.report.step for change in changes if change.report] == list(range(1, 13))
        assert changes[-1].job.state == 7 and changes[-1].job.name == "python"  # JOB_STATE_SUCCEEDED
        assert len([change.report for change in changes if change.report][-1].norms.weight) > 5

        columns = client.metrics("python")
        assert columns["step"] == list(range(1, 13))
        reported = cluster.reports("python")
        assert columns["loss"] == [report["loss"] for report in reported]
        assert all(len(column) == 12 for column in columns.values())
        assert len(client.metrics("python", points=4)["step"]) <= 6
        spent = client.get("python").time
        assert abs(spent.stepping - sum(columns["seconds"])) < 0.01 and spent.starting > 0 and spent.lost == 0
        parts = (spent.waiting, spent.starting, spent.stepping, spent.checkpoints, spent.lost, spent.other)
        assert abs(sum(parts) - spent.total) < 1e-6 and min(parts) >= 0
        norms = client.norms("python", 12)
        assert norms["model.norm.weight"]["weight"] > 0
        assert [event.reason for event in client.events("python")][-1] == "Finished"
        assert [each.name for each in client.jobs(states=["SUCCEEDED"])] == ["python"]
        assert list(client.jobs(states=["FAILED"])) == []
        assert [worker.id for worker in client.workers()] == ["w0", "w1"]
        assert {piece.rank for piece in client.logs("python")} <= {0, 1}


def test_metrics_begin_with_the_validation_of_step_0(start, tandem):
    from tandem.v1 import jobs_pb2
    cluster = start()
    cluster.submit(tiny_job("validated", steps=3, validate_every_steps=2))
    cluster.wait_state("validated", "SUCCEEDED")
    wait_for("every step is reported", lambda: cluster.step("validated") >= 3)
    assert [report["step"] for report in cluster.reports("validated")] == [0, 1, 2, 3]
    client = tandem.Client(cluster.address)
    columns = client.metrics("validated")
    assert columns["step"] == [0, 1, 2, 3] and [loss is None for loss in columns["validation_loss"]] == [False, True, False, False]
    request, steps = jobs_pb2.ListReportsRequest(job="validated", page_size=1), []
    while not steps or request.page_token:  # a page may end with step 0
        page = client._call("ListReports", request)
        steps += [report.step for report in page.reports]
        request.page_token = page.next_page_token
    assert steps == [0, 1, 2, 3]


def test_watch_continues_after_a_restarted_controller(start, tandem):
    cluster = start()
    client = tandem.Client(cluster.address)
    job = client.submit(tiny_job("long", steps=400))
    steps, state = [], None
    for change in client.watch(job.id, reports=True):
        if change.report is not None:
            steps.append(change.report.step)
            if len(steps) == 20:
                cluster.kill_controller()
                cluster.start_controller()
        if change.job is not None:
            state = change.job.state
    assert steps == list(range(1, 401)) and state == 7


def test_checkpoint_and_cancel_are_calls(start, tandem, tmp_path):
    cluster = start()
    client = tandem.Client(cluster.address)
    job = client.submit(tiny_job("saved", steps=ENDLESS, directory=tmp_path / "run"))
    wait_for("steps", lambda: client.get(job.id).last_step > 2)
    asked = client.checkpoint(job.id).checkpoints.requested
    wait_for("a checkpoint", lambda: client.get(job.id).checkpoints.answered >= asked)
    client.cancel(job.id, checkpoint=True)
    assert client.wait(job.id).state == 9  # JOB_STATE_CANCELLED
    assert len(list((tmp_path / "run").glob("step-*"))) == 2


class Watched:
    """A service whose only job runs until `end` is set."""

    def __init__(self, port=0):
        from tandem.v1 import jobs_pb2, jobs_pb2_grpc, state_pb2
        self.end = threading.Event()

        class Jobs(jobs_pb2_grpc.JobsServicer):
            def Watch(_, request, context):
                yield jobs_pb2.WatchResponse(cursor="c", snapshot=state_pb2.Job(state=state_pb2.JOB_STATE_RUNNING))
                while context.is_active() and not self.end.wait(0.01):
                    pass
                yield jobs_pb2.WatchResponse(cursor="d", changed=state_pb2.Job(state=state_pb2.JOB_STATE_SUCCEEDED))

        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        jobs_pb2_grpc.add_JobsServicer_to_server(Jobs(), self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.server.start()

    def stop(self):
        self.server.stop(0).wait()


def test_a_wait_ends_with_its_timeout(tandem):
    service = Watched()
    with tandem.Client(f"127.0.0.1:{service.port}") as client:
        with pytest.raises(tandem.TimedOut, match="job j has not ended within 0.5 seconds; it goes on"):
            client.wait("j", timeout=0.5)
        service.stop()  # whatever the connection does
        with pytest.raises(tandem.TandemError):
            client.wait("j", timeout=0.5)
        service.end.set()


def test_watch_logs_its_loss_and_return(tandem, caplog):
    service = Watched()
    with tandem.Client(f"127.0.0.1:{service.port}") as client:
        watch = client.watch("j", timeout=300)
        assert next(watch).job.state == 4  # JOB_STATE_RUNNING
        service.stop()
        again = Watched(service.port)
        again.end.set()
        assert [change.job.state for change in watch][-1] == 7
        assert "the watch of job j was cut off, and is tried again: " in caplog.text
        assert "the watch of job j goes on" in caplog.text
        service.end.set()
        again.stop()


@pytest.fixture
def answering(tandem):
    """answering(response) gives a Client of a service whose ListReports answers that."""
    from tandem.v1 import jobs_pb2_grpc
    started = []

    def make(response):
        class Jobs(jobs_pb2_grpc.JobsServicer):
            def ListReports(self, request, context):
                return response

        server = grpc.server(futures.ThreadPoolExecutor(1))
        jobs_pb2_grpc.add_JobsServicer_to_server(Jobs(), server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        started.append((server, tandem.Client(address)))
        return started[-1][1]

    yield make
    for server, client in started:
        client.close()
        server.stop(None)


def test_norms_of_an_impossible_step_are_refused(tandem):
    client = tandem.Client(f"127.0.0.1:{free_port()}")  # nothing is asked
    for step in (0, -1):
        with pytest.raises(ValueError, match=f"step: {step} is not allowed; it must be an integer ≥ 1"):
            client.norms("any", step)
    for step in (None, "7", 1.0):
        with pytest.raises(TypeError, match="integer"):
            client.norms("any", step)


def test_norms_that_mismatch_their_parameters_are_an_error(tandem, answering):
    from tandem.v1 import jobs_pb2
    response = jobs_pb2.ListReportsResponse()
    response.table.parameters.add(name="a")
    response.table.parameters.add(name="b")
    norms = response.reports.add(step=1).norms
    norms.weight.extend([1, 2])
    norms.gradient.extend([3, 4])
    norms.update.extend([5, 6])
    assert answering(response).norms("any", 1)["b"] == {"weight": 2, "gradient": 4, "update": 6}
    for extra in (norms.weight, norms.gradient, norms.update):
        extra.append(7)
        with pytest.raises(tandem.TandemError, match="norms of step 1: 2 parameters, but .*3"):
            answering(response).norms("any", 1)
        extra.pop()
    response.table.parameters.add(name="c")
    with pytest.raises(tandem.TandemError, match="3 parameters, but 2 norms of weights, 2 of gradients, 2 of updates; "
                       "controller and client may be of different builds, or the job ran under an earlier build"):
        answering(response).norms("any", 1)


def test_service_reads_a_dictionary_or_job_file(start, tandem, tmp_path):
    client = tandem.Client(start(workers=0).address)
    job = tiny_job("lists")
    text = job["data"].pop("train")
    job["data"].update(sources=[{"path": text, "name": "a", "weight": 1}, {"path": text, "name": "b", "weight": 3}])
    job["parallelism"]["fsdp"] = {"prefetch": "auto"}
    job["resources"] = {"device": "cpu"}
    spec = client.submit(job).submitted
    assert [source.weight for source in spec.data.sources] == [1, 3] and spec.parallelism.fsdp.prefetch == -1
    path = tmp_path / "job.yaml"
    path.write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in {**job, "name": "file"}.items()) + "  # YAML\n")
    assert client.submit(path).name == "file"
    for wrong, why in [({"training": {"stepz": 1}}, "stepz.*did you mean steps?"),
                       ({"training": {"steps": 1.5}}, "training.steps: 1.5 is not allowed"),
                       ({"training": {"seed": None}}, "training.seed: null is not allowed"),
                       ({"model": {"rope_theta": float("nan")}}, "model.rope_theta: NaN is not allowed"),
                       ({"data": {"train": tmp_path}}, r"^job: PosixPath\('.*'\) is a PosixPath; allowed are text, numbers"),
                       (7, "a job is a dictionary, the path of a job file, or a JobSpec, but this is a int$")]:
        with pytest.raises(tandem.Refused, match=why):
            client.submit(wrong)
    path.write_bytes("name: größe".encode("latin-1"))
    with pytest.raises(tandem.Refused, match="job.yaml: it is not UTF-8"):
        client.submit(path)


def test_what_is_refused_says_why(start, tandem):
    cluster = start(workers=0)
    client = tandem.Client(cluster.address)
    bad = tiny_job("bad")
    bad["training"]["steps"] = 0
    with pytest.raises(tandem.Refused, match=r"^training.steps: 0 is not allowed[^\n]*\Z"):
        client.submit(bad)
    assert [violation.path for violation in client.validate(bad)] == ["training.steps"]
    with pytest.raises(ValueError, match="states: 'DONE' is not allowed; allowed: QUEUED, .*CANCELLED"):
        list(client.jobs(states=["DONE"]))
    with pytest.raises(tandem.NotFound):
        client.get("nobody")
    with pytest.raises(tandem.Refused):
        client.checkpoint(client.submit(tiny_job("queued")).id)
    with pytest.raises(tandem.Unreachable):
        tandem.Client(f"127.0.0.1:{free_port()}").get("x")
    with pytest.raises(ValueError, match="all three"):
        tandem.Client("host:1", ca="/ca.pem")
