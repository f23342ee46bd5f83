#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The alert rules are good, fire when alerts_test.yaml says, and every alert is tried there and has a section in docs/operations.md;
the queries of the dashboard are good.

Usage: alerts_test.py REPOSITORY
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    deploy = root / "deploy/prometheus"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(deploy / "alerts.yaml", folder)
        cases = shutil.copy(root / "tests/deploy/alerts_test.yaml", folder)
        panels = json.loads((root / "deploy/grafana/tandem.json").read_text())["panels"]
        queries = [target["expr"].replace("$job_name", ".*") for panel in panels for target in panel.get("targets", [])]
        assert len(queries) > 10
        records = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
        (folder / "queries.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": records}]}))  # JSON is YAML
        for command in (["check", "rules", folder / "queries.yaml"], ["check", "config", deploy / "prometheus.yml"], ["check", "rules", "--lint-fatal", folder / "alerts.yaml"],
                        ["test", "rules", cases]):
            subprocess.run(["promtool", *command], check=True)
    alerts = set(re.findall(r"- alert: (\w+)", (deploy / "alerts.yaml").read_text()))
    tests = (root / "tests/deploy/alerts_test.yaml").read_text()
    fired = {re.search(r"alertname: (\w+)", block)[1] for block in re.split(r"- (?=eval_time|\{eval_time)", tests) if "exp_alerts" in block}
    page = (root / "docs/operations.md").read_text()
    explained = {name for name, text in re.findall(r"^### (Tandem\w+)\n\n(.+)$", page, re.M) if len(text) > 40}
    assert len(alerts) > 5 and alerts == fired, f"never fired in alerts_test.yaml: {alerts - fired}"
    assert alerts == explained, f"in alerts.yaml or explained in docs/operations.md, and not both: {alerts ^ explained}"
    print(f"{len(alerts)} alerts")


if __name__ == "__main__":
    main()
