#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast the page is: a controller with 1,000 jobs, of which one has reported norms of a model of 200 layers.

Prints milliseconds: to the first paint, until all jobs are listed, of clicks (to the next frame that shows their
answer), and until a heat map of every parameter is drawn. Usage, with the tests' Python (scripts/setup.sh --tests):
bench/page_speed.py FOLDER_OF_BINARIES [--screenshots FOLDER]
"""
import argparse
import concurrent.futures
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
from browser import Browser  # noqa: E402
from cluster import Cluster, free_port, tiny_job, wait_for  # noqa: E402
from grpc_client import Client  # noqa: E402

LAYERS = 200
PARTS = ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
         "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
STEPS = 64


def submit_all(client, jobs):
    spec = tiny_job("x", ranks=1, steps=STEPS * 10)
    spec["training"]["optimizer"]["name"] = "OPTIMIZER_NAME_ADAMW"
    spec["parallelism"]["fsdp"]["strategy"] = "STRATEGY_ZERO3"
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: client.call("tandem.v1.Jobs", "Submit", {"spec": {**spec, "name": f"job-{i}"}}), range(jobs)))


def report(client, job):
    """What a worker would send of a job with 200 layers."""
    names = [f"model.layers.{layer}.{part}.weight" for layer in range(LAYERS) for part in PARTS]
    batches = [client.message("tandem.v1.ReportBatch", {
        "id": {"jobId": job, "attempt": 1}, "seq": 1,
        "table": {"digest": "t", "parameters": [{"name": name, "shape": [4096, 4096]} for name in names]}})]
    for step in range(1, STEPS + 1):
        size = [1 + (i * 37 + step) % 100 for i in range(len(names))]
        batches.append(client.message("tandem.v1.ReportBatch", {
            "id": {"jobId": job, "attempt": 1}, "seq": step + 1,
            "reports": [{"step": step, "loss": 10 / step, "gradNorm": 1, "tokens": 1000, "seconds": 0.5, "attempt": 1, "norms": {
                "weight": size, "gradient": [s * 1e-3 for s in size], "update": [s * 1e-5 * (1 + (i + step) % 11) for i, s in enumerate(size)], "tableDigest": "t"}}]}))
    client.converse("tandem.v1.Workers", "Reports", batches, lambda ack: ack.seq == STEPS + 1, seconds=60)


def run_one(client):
    """A worker that has one slot and says that its rank runs; gives the id of its job."""
    hello = {"hello": {"workerId": "bench", "incarnation": 1, "protocolMin": 1, "protocolMax": 1,
                       "inventory": {"hostname": "bench", "slots": [{"index": 0, "device": "DEVICE_CPU", "healthy": True}]}}, "seq": 1}
    answers = client.converse("tandem.v1.Workers", "Session", [hello], lambda answer: bool(
        answer.welcome.assignments.all or answer.assignments.all), seconds=20)
    assigned = [*answers[-1].welcome.assignments.all, *answers[-1].assignments.all]
    return assigned[0].id.job_id


# A click, then two frames after what it asks for is there.
CLICK = """const [selector, ready, done] = arguments; const from = performance.now();
document.querySelector(selector).click();
const look = () => { if (document.querySelector(ready)) requestAnimationFrame(() => setTimeout(() => done(performance.now() - from))); else setTimeout(look, 2); };
look();"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries")
    parser.add_argument("--screenshots")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(arguments.binaries, folder, workers=0, metrics=f"127.0.0.1:{free_port()}")
        browser = None
        try:
            client = Client(cluster.address)
            submit_all(client, 1000)
            job = run_one(client)
            report(client, job)
            browser = Browser()
            first, listed = [], []
            for _ in range(5):
                browser.open(cluster.metrics)
                wait_for("all jobs", lambda: browser.text("#count") == "1000 jobs")
                first.append(browser.script("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
                listed.append(browser.script("performance.getEntriesByType('resource').filter((one) => one.name.includes('ListJobs')).slice(0, 2).at(-1).responseEnd"))
            print(f"first paint {statistics.median(first):.0f} ms, the last page of 1,000 jobs after {statistics.median(listed):.0f} ms")
            if arguments.screenshots:
                browser.driver.save_screenshot(f"{arguments.screenshots}/thousand.png")
            for what, selector, ready in (("filter by state", "button[data-state=QUEUED]", "button[data-state=QUEUED].on"),
                                          ("no filter", "button[data-state=QUEUED]", "button[data-state=QUEUED]:not(.on)"),
                                          ("open a job", "#jobs tbody tr", "#state")):
                print(f"click, {what}: {browser.driver.execute_async_script(CLICK, selector, ready):.0f} ms")
            started = time.monotonic()
            browser.open(cluster.metrics, f"#/job/{job}")
            browser.driver.refresh()
            wait_for("the heat map", lambda: browser.drawn("#heat canvas"))
            print(f"heat map of {LAYERS * len(PARTS)} parameters x {STEPS} steps: {1000 * (time.monotonic() - started):.0f} ms from the load of the page")
            browser.script("document.querySelector('#heat').scrollIntoView()")
            print(f"click, a parameter's curve: {browser.driver.execute_async_script(CLICK.replace('document.querySelector(selector).click()', 'view.showParameter(700)').replace('document.querySelector(ready)', 'view.curve.series.length'), '', ''):.0f} ms")
            if arguments.screenshots:
                browser.driver.save_screenshot(f"{arguments.screenshots}/heat.png")
            print(f"complaints: {browser.complaints()}")
        finally:
            if browser is not None:
                browser.close()
            cluster.close()


main()
