# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks share the work along two axes: real processes, a communicator for each axis."""
import json
import pathlib

import pytest

from cluster import tiny_job

STEPS = 12
SAVED = 6


def job(name, strategy, directory, resume=None):
    """Four ranks in fp64, so that another order of addition is seen as such and nothing else is."""
    spec = tiny_job(name, ranks=4, steps=STEPS, directory=directory, every_steps=SAVED, validate_every_steps=SAVED,
                    validation_batches=3)
    spec["precision"] = {"compute": "fp64"}
    spec["parallelism"]["fsdp"]["strategy"] = strategy
    if strategy.startswith("h"):
        spec["parallelism"]["replicas"] = 2
    if resume is not None:
        spec["checkpoint"]["resume"] = str(resume)
    return spec


def run(cluster, spec):
    """What its ranks have seen, by step, 0 included where it is validated; without what depends on time."""
    cluster.submit(spec)
    cluster.wait_state(spec["name"], "SUCCEEDED", 120)
    metrics = pathlib.Path(spec["checkpoint"]["directory"]) / "metrics.jsonl"
    return {line["step"]: [line.get(number) for number in ("loss", "grad_norm", "validation_loss")]
            for line in map(json.loads, metrics.read_text().splitlines())}


def test_a_job_on_two_axes_saves_goes_on_under_the_other_strategy_and_has_the_losses_of_one_axis(start, tmp_path):
    cluster = start(workers=2, slots=2)
    hsdp = run(cluster, job("hsdp", "hsdp", tmp_path / "hsdp"))
    assert list(hsdp) == list(range(STEPS + 1))
    assert [step for step, numbers in hsdp.items() if numbers[-1] is not None] == [0, SAVED, STEPS]
    lists = {}
    for group in cluster.job("hsdp")["groups"]:
        lists.setdefault(group["name"], []).append(group["ranks"])
    assert lists["intra_dp_cp"] == lists["dp_cp_ag"] == [[0, 1], [2, 3]]
    assert lists["inter_dp_cp"] == [[0, 2], [1, 3]]

    # Both add within the replicas and then over them: the same bits, and each reads what the other has saved.
    hfsdp = run(cluster, job("hfsdp", "hfsdp", tmp_path / "hfsdp"))
    assert hfsdp == hsdp
    for name, strategy, source in (("on-hfsdp", "hfsdp", "hsdp"), ("on-hsdp", "hsdp", "hfsdp")):
        resumed = run(cluster, job(name, strategy, tmp_path / name, tmp_path / source / f"step-{SAVED}"))
        assert resumed == {step: hsdp[step] for step in range(SAVED + 1, STEPS + 1)}, name

    zero3 = run(cluster, job("zero3", "zero3", tmp_path / "zero3"))
    assert list(zero3) == list(hsdp)
    for step, numbers in zero3.items():
        for number, expected in zip(hsdp[step], numbers, strict=True):
            assert number is expected is None or number == pytest.approx(expected, rel=1e-11), step
