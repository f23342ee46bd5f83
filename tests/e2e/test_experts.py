# SPDX-License-Identifier: Apache-2.0
"""A job whose ranks share experts, overlapped, in real processes: its losses, and what the CLI says of its routers."""
import json
import pathlib

import pytest

from cluster import tiny_job, wait_for

STEPS = 6
EXPERTS = 4
CHOICES = 2  # experts of a token


def job(name, directory, expert, **parallelism):
    spec = tiny_job(name, ranks=2, steps=STEPS, directory=directory)
    spec["model"] |= {"model_type": "mixtral", "moe": {"num_experts": EXPERTS, "num_experts_per_tok": CHOICES}}
    spec["parallelism"] |= {"expert": expert, **parallelism}
    spec["precision"] = {"compute": "fp64"}
    return spec


def losses(cluster, spec):
    cluster.submit(spec)
    cluster.wait_state(spec["name"], "SUCCEEDED", 120)
    metrics = pathlib.Path(spec["checkpoint"]["directory"]) / "metrics.jsonl"
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]


def test_sharing_experts_changes_no_loss_and_reports_loads(start, tmp_path):
    cluster = start(workers=2, slots=1)
    whole = losses(cluster, job("whole", tmp_path / "whole", 1))
    shared = losses(cluster, job("shared", tmp_path / "shared", 2, schedule="overlap",
                                 overlap={"delay_weight_gradients": True}, dispatch={"chunks": "exact"}))
    assert shared == pytest.approx(whole, rel=1e-12)

    wait_for("every step is reported", lambda: cluster.step("shared") >= STEPS)
    training = tiny_job("sizes", ranks=2)["training"]
    tokens = training["global_batch_size"] * training["sequence_length"]
    rows = [json.loads(line) for line in cluster.cli("metrics", "shared", "--moe", "-o", "json").stdout.splitlines()]
    assert [row["layer"] for row in rows] == [0, 1]
    for row in rows:
        assert row["step"] == STEPS
        assert len(row["tokens"]) == EXPERTS and sum(row["tokens"]) == tokens * CHOICES
        assert row["dropped"] == 0 and row["balance_loss"] > 0.9 and row["z_loss"] > 0
        assert row["further_passes"] >= 0
    table = cluster.cli("metrics", "shared", "--moe", "--step", "1").stdout.splitlines()
    assert table[0].startswith("STEP 1 ") and table[0].endswith("FURTHER PASSES")
    assert [line.split()[:2] for line in table[1:]] == [["layer", "0"], ["layer", "1"]]
