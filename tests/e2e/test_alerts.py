# SPDX-License-Identifier: Apache-2.0
"""The alert rules with a real Prometheus (when each fires is tried in tests/deploy), and what the dashboard asks for."""
import json
import os
import pathlib
import re
import signal
import subprocess
import urllib.request

from cluster import free_port, tiny_job, wait_for

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus/alerts.yaml"


def dashboard_queries():
    dashboard = json.loads((DEPLOY / "grafana/tandem.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return queries + [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]


def test_rules_and_dashboard_use_existing_series_only(start):
    port = free_port()
    start(workers=0, metrics=f"127.0.0.1:{port}")
    scrape = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    exprs = re.findall(r"^ +expr: (.*)$", RULES.read_text(), re.M)
    names = {name for expr in exprs + dashboard_queries() for name in re.findall(r"\b(?:tandem|process|grpc_server)_\w+", expr)}
    assert len(names) >= 20
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", scrape, re.M))
    there = set(types) | {f"{name}_bucket" for name, kind in types.items() if kind == "histogram"}
    assert names <= there, names - there
    labels = {label for expr in exprs for label in re.findall(r'(tandem_\w+\{\w+="\w+")', expr)}
    assert len(labels) == 3
    for label in labels:
        assert label in scrape


def test_scrape_has_what_a_job_sends(start, tmp_path):
    port = free_port()
    cluster = start(metrics=f"127.0.0.1:{port}")
    spec = tiny_job("weighed", steps=5)
    cluster.submit(spec)
    cluster.wait_state("weighed", "SUCCEEDED")

    def series(name):
        scrape = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
        return {labels: float(value) for labels, value in re.findall(rf'^{name}{{job_name="weighed",(.*)}} (.*)$', scrape, re.M)}

    plan = json.loads(cluster.cli("plan", "-f", tmp_path / "weighed.json", "-o", "json").stdout)
    # A short job's reports may come after its end.
    memory = wait_for("the job's reports", lambda: series("tandem_device_memory_bytes"))
    assert memory['kind="arena"'] == plan["memory"]["arena_bytes"]
    assert memory['kind="arena"'] < memory['kind="used"'] < memory['kind="total"']
    assert memory['kind="total"'] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    sent = wait_for("what it sent", lambda: series("tandem_comm_bytes_total"))
    assert set(sent) == {'op="gather"', 'op="reduce"'}
    # Two ranks, each half of the gradients of every microbatch; weights are gathered for forward and for backward.
    assert sent['op="reduce"'] < sent['op="gather"'] <= 2 * sent['op="reduce"']


def test_alert_fires_while_a_rank_is_stopped(start, tmp_path):
    target, web = free_port(), free_port()
    cluster = start(metrics=f"127.0.0.1:{target}")
    # The same rules, sooner.
    (tmp_path / "alerts.yaml").write_text(re.sub(r"for: \d+m", "for: 2s", RULES.read_text()))
    config = tmp_path / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [alerts.yaml]\n"
                      f"scrape_configs: [{{job_name: tandem, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n")
    prometheus = subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/tsdb",
                                   f"--web.listen-address=127.0.0.1:{web}"], stderr=subprocess.DEVNULL)

    def firing():
        try:
            answer = json.load(urllib.request.urlopen(f"http://127.0.0.1:{web}/api/v1/alerts", timeout=5))
        except OSError:
            return None
        return [(alert["labels"]["alertname"], alert["labels"].get("job_name")) for alert in answer["data"]["alerts"]
                if alert["state"] == "firing"]

    pid = None
    try:
        cluster.submit(tiny_job("watched", steps=1_000_000))
        wait_for("some steps", lambda: cluster.step("watched") >= 5)
        wait_for("Prometheus answers, and nothing is wrong", lambda: firing() == [])
        pid = cluster.trainers()[0]
        os.kill(pid, signal.SIGSTOP)
        wait_for("the alert", lambda: firing() == [("TandemJobStalled", "watched")])
        os.kill(pid, signal.SIGCONT)
        wait_for("its end", lambda: firing() == [])
    finally:
        if pid is not None:
            os.kill(pid, signal.SIGCONT)
        prometheus.terminate()
        prometheus.wait()
