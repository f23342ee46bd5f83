"""Process groups: what the command prints for random grids, and what a job's ranks create."""
import collections
import json
import os
import random
import subprocess

import pytest

from cluster import tiny_job


def groups(bin_dir, *args):
    done = subprocess.run([bin_dir / "tandem", "groups", *map(str, args), "-o", "json"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=20, env={**os.environ, "NO_COLOR": "1"})
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


class Grid:
    """Ranks by their coordinates: the first axis of the order is the lowest digit."""

    def __init__(self, order, sizes, offset):
        self.order, self.sizes, self.offset = order, sizes, offset
        self.world = 1
        for axis in order:
            self.world *= sizes[axis]

    def coordinates(self, rank):
        at = {}
        for axis in self.order:
            rank, at[axis] = divmod(rank, self.sizes[axis])
        return at

    def varying(self, *axes):
        """Ranks that agree in all other coordinates, in rank order."""
        found = collections.OrderedDict()
        for rank in range(self.world):
            at = self.coordinates(rank)
            key = tuple(at[axis] for axis in self.order if axis not in axes)
            found.setdefault(key, []).append(rank + self.offset)
        return list(found.values())


DENSE = {"dp_cp": ("dp", "cp"), "dp": ("dp",), "cp": ("cp",), "mp": ("tp", "pp"), "tp": ("tp",), "pp": ("pp",),
         "tp_dp_cp": ("tp", "dp", "cp"), "tp_dp": ("tp", "dp"), "tp_cp": ("tp", "cp")}
EXPERT = {"ep": ("ep",), "expt_tp": ("tp",), "tp_ep": ("tp", "ep"), "tp_ep_pp": ("tp", "ep", "pp"), "expt_dp": ("dp",)}


def test_groups_of_random_grids_are_those_of_the_coordinates(bin_dir):
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    shown = 0
    for _ in range(60):
        order = ["tp", "cp", "ep", "dp", "pp"]
        draw.shuffle(order)
        if draw.random() < 0.6:
            order.sort(key=lambda axis: axis == "pp")
        tensor, context, pipeline = draw.choice([1, 2, 3]), draw.choice([1, 2]), draw.choice([1, 1, 2])
        expert, expert_tensor = draw.choice([1, 2]), draw.choice([1, tensor])
        world = tensor * context * pipeline * draw.choice([1, 2, 4, 6])
        offset = draw.choice([0, 5])
        separate = draw.random() < 0.5
        answer = groups(bin_dir, "--world-size", world, "--tensor", tensor, "--pipeline", pipeline, "--context",
                        context, "--expert", expert, "--expert-tensor", expert_tensor, "--order", "-".join(order),
                        "--rank-offset", offset, *(["--separate-all-gather"] if separate else []))
        if world % (expert * expert_tensor * pipeline) != 0:
            assert "--world-size" in answer
            continue
        dense = Grid(order, {"tp": tensor, "cp": context, "ep": 1, "pp": pipeline,
                             "dp": world // (tensor * context * pipeline)}, offset)
        experts = Grid(order, {"tp": expert_tensor, "cp": 1, "ep": expert, "pp": pipeline,
                               "dp": world // (expert_tensor * expert * pipeline)}, offset)
        if pipeline > 1 and (dense.varying("pp") != experts.varying("pp")
                             or (order[-1] != "pp" and dense.sizes["dp"] != experts.sizes["dp"])):
            assert "put pp last" in answer
            continue
        shown += 1
        assert answer["world_size"] == world
        lists = answer["groups"]
        for name, axes in DENSE.items():
            assert lists[name] == dense.varying(*axes), (seed, name)
        for name, axes in EXPERT.items():
            assert lists[name] == experts.varying(*axes), (seed, name)
        assert ("dp_cp_ag" in lists) == separate and ("expt_dp_ag" in lists) == (separate and expert > 1)
        if separate:
            assert lists["dp_cp_ag"] == lists[answer["clone_of"]["dp_cp_ag"]] == lists["dp_cp"]
    assert shown > 15


def test_a_job_describes_the_groups_that_its_ranks_create(start):
    cluster = start(workers=2, slots=1)
    cluster.submit(tiny_job("grouped", steps=3))
    cluster.wait_state("grouped", "SUCCEEDED")
    lists = cluster.job("grouped")["groups"]
    assert [group["name"] for group in lists] == ["dp_cp", "dp_cp_ag", "intra_dist_opt", "report"]
    assert all(group["ranks"] == [0, 1] for group in lists)
    assert lists[1]["clone_of"] == 0
    text = cluster.cli("describe", "grouped").stdout
    assert "Process groups\n" in text
    assert "{0 1}  gathers of dense parameters; a clone of dp_cp\n" in text
    shown = groups(cluster.bin, "-f", cluster.folder / "grouped.json")["groups"]
    for group in lists:
        assert group["ranks"] in shown[group["name"]]


def test_replicas_gather_inside_each_and_reduce_between_them(start):
    cluster = start(workers=2, places=2)
    losses = {}
    for name, parallelism in (("zero", {"fsdp": {"strategy": "zero3"}}),
                              ("hsdp", {"fsdp": {"strategy": "hsdp"}, "replicas": 2})):
        spec = tiny_job(name, ranks=4, steps=6)
        spec["parallelism"].update(parallelism)
        cluster.submit(spec)
        cluster.wait_state(name, "SUCCEEDED")
        losses[name] = [report["loss"] for report in cluster.reports(name)]
    lists = {}
    for group in cluster.job("hsdp")["groups"]:
        lists.setdefault(group["name"], []).append(group["ranks"])
    assert lists["intra_dp_cp"] == lists["dp_cp_ag"] == [[0, 1], [2, 3]]
    assert lists["inter_dp_cp"] == [[0, 2], [1, 3]]
    assert losses["hsdp"] == pytest.approx(losses["zero"], rel=2e-6)


def test_a_grid_that_trainers_cannot_run_yet_is_refused_at_submit_and_still_shown(start):
    cluster = start(workers=1, slots=1)
    spec = tiny_job("tensor", ranks=4)
    spec["parallelism"]["tensor"] = 2
    path = cluster.folder / "tensor.json"
    path.write_text(json.dumps(spec))
    done = cluster.cli("submit", "-f", path, check=False)
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "parallelism.tensor: 2 is not allowed; allowed: 1; not built yet: tensor parallelism; use 1" in done.stderr
    assert groups(cluster.bin, "-f", path)["groups"]["tp"] == [[0, 1], [2, 3]]
