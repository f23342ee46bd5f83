# SPDX-License-Identifier: Apache-2.0
"""Learning rates are those of Hugging Face's `transformers`."""
import pytest
import torch
import transformers

from cluster import tiny_job, wait_for


def test_learning_rates_are_those_of_transformers(start):
    """Every step's rate from the end of the warm-up, of the decays that transformers has too."""
    steps, warmup, rate = 20, 4, 1e-3
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=rate)
    schedules = {
        "linear": ({"decay": "linear"},
                   transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)),
        "wsd": ({"decay": "wsd", "decay_steps": 6, "min_learning_rate": 1e-4},
                transformers.get_wsd_schedule(optimizer, warmup, 6, num_training_steps=steps, decay_type="linear",
                                              min_lr_ratio=0.1)),
        "wsd-sqrt": ({"decay": "wsd", "decay_steps": 6, "decay_shape": "sqrt"},
                     transformers.get_wsd_schedule(optimizer, warmup, 6, num_training_steps=steps,
                                                   decay_type="1-sqrt")),
        "inverse-sqrt": ({"decay": "inverse_sqrt"}, transformers.get_inverse_sqrt_schedule(optimizer, warmup)),
    }
    cluster = start(workers=1)
    for name, (schedule, _) in schedules.items():
        spec = tiny_job(name, ranks=1, steps=steps, validate_every_steps=0)
        spec["training"]["optimizer"] = {"learning_rate": rate}
        spec["training"]["schedule"] = {"warmup_steps": warmup, **schedule}
        cluster.submit(spec)
    for name, (_, theirs) in schedules.items():
        cluster.wait_state(name, "SUCCEEDED", 120)
        wait_for("its reports", lambda name=name: cluster.step(name) >= steps)
        ours = [report["learning_rate"] for report in cluster.reports(name)]
        expected = [rate * theirs.lr_lambdas[0](step) for step in range(warmup, steps + 1)]
        assert ours[warmup - 1:] == pytest.approx(expected, rel=1e-12, abs=1e-18), name
