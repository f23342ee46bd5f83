# SPDX-License-Identifier: Apache-2.0
"""Programs that are not ours: a Python gRPC client that knows only reflection."""
import json
import pathlib
import random
import socket

import grpc

from cluster import tiny_job
from grpc_client import Client


def enums(spec):
    """The protobuf JSON of a spec wants whole enum names."""
    spec = json.loads(json.dumps(spec))
    spec["training"]["optimizer"]["name"] = "OPTIMIZER_NAME_ADAMW"
    spec["parallelism"]["fsdp"]["strategy"] = "STRATEGY_ZERO3"
    return spec


def test_python_client_with_reflection_submits_and_watches(start):
    cluster = start()
    client = Client(cluster.address)
    assert "tandem.v1.Jobs" in client.database.get_services()
    job = client.call("tandem.v1.Jobs", "Submit", {"spec": enums(tiny_job("foreign", steps=12)), "requestId": "r1"})
    again = client.call("tandem.v1.Jobs", "Submit", {"spec": enums(tiny_job("foreign", steps=12)), "requestId": "r1"})
    assert again.id == job.id
    steps, states, synced = [], [], False
    for response in client.stream("tandem.v1.Jobs", "Watch", {"job": job.id, "reports": True}):
        item = response.WhichOneof("item")
        if item == "report":
            steps.append(response.report.step)
        elif item == "synced":
            synced = True
        elif item in ("snapshot", "changed"):
            states.append(getattr(response, item).state)
            if states[-1] == 7 and steps and steps[-1] == 12:
                break
    assert synced
    assert steps == list(range(1, 13))
    assert states[-1] == 7  # JOB_STATE_SUCCEEDED


def refused(client, spec, **more):
    """The error of a Submit that must not be accepted."""
    try:
        client.call("tandem.v1.Jobs", "Submit", {"spec": spec, **more})
    except grpc.RpcError as error:
        return error
    raise AssertionError("accepted")


def test_what_is_no_name_is_refused(start):
    cluster = start(workers=0)
    client = Client(cluster.address)
    for name in ("../../etc/passwd", ";rm -rf /", "a\nb", "a\0b", "\u202eabc", "\U0001f600", "größe", "n" * 64,
                 "n" * 1_000_000):
        error = refused(client, enums(tiny_job(name)))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert error.details().startswith("name: ") and "1 to 63 of a-z, 0-9 and -" in error.details()
        assert len(error.details()) < 1000 and error.details().rstrip("\n").isprintable()
    log = (cluster.folder / "controller.log").read_text()
    assert len(log) < 100_000 and "\u202e" not in log
    assert cluster.cli("get", "jobs", "-o", "json").stdout == "[]\n"


def test_bad_messages_are_refused_and_the_controller_stays(start):
    cluster = start(workers=0)
    client = Client(cluster.address)

    def resident():
        status = pathlib.Path(f"/proc/{cluster.controller.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    before = resident()
    for size in (4 << 20, 32 << 20):
        error = refused(client, enums(tiny_job("n" * (size + 1))))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "4194304" in error.details()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    noise = random.Random(seed)
    submit = client.channel.unary_unary("/tandem.v1.Jobs/Submit")
    for body in [b"\x0a\x04\x0a\x02\xff\xfe", b"\xff" * 64, *(noise.randbytes(noise.randrange(1, 2000)) for _ in range(200))]:
        try:
            submit(body, timeout=60)
            raise AssertionError(f"accepted: {body.hex()}")
        except grpc.RpcError as error:
            # gRPC itself answers UNIMPLEMENTED to what is not a message.
            assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
    for start_of in (b"GET / HTTP/1.1\r\n\r\n", noise.randbytes(100_000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(cluster.address.removeprefix("unix:"))
            try:
                raw.sendall(start_of)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has seen enough
    assert cluster.cli("get", "jobs", "-o", "json").stdout == "[]\n"
    assert cluster.controller.poll() is None
    assert resident() < before + (64 << 10)  # kB: a message over the limit is gone when it is refused
