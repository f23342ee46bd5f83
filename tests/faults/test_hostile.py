# SPDX-License-Identifier: Apache-2.0
"""Uses the service as somebody would who wants it to fail, for as long as asked, and counts what happened.

A job trains on three workers while tricks are played, drawn at random: those of outages.py, store_faults.py and strangers.py. After each
the cluster must serve, and the job must train on or end with the cause that fits. A sample of the tricks runs in CI, and a
round of each with scripts/test.sh --full; the hostile half hour is

    pytest tests/faults/test_hostile.py --bin-dir build/release/bin --rounds 20 --specs 2000 [--seed N] [--tricks a,b]
"""
import collections
import contextlib
import random
import time
import traceback

import pytest

import outages
import store_faults
import strangers
from faulty_libc import compile_into
from hostile_cluster import HostileCluster
from storm import Storm

TRICKS = [outages.clock_jumps, outages.clock_set_back_while_a_link_is_held, outages.controller_returns_in_another_time,
          outages.slow_disk, outages.full_disk_of_a_worker, outages.full_disk_of_the_controller, outages.held_link,
          outages.cut_links, outages.slow_link, outages.half_open_clients, outages.stopped_controller,
          outages.stopped_worker, outages.killed_controller, store_faults.stalled_store,
          store_faults.damaged_store, store_faults.folders_that_cannot_be_made_durable, store_faults.removed_socket,
          store_faults.hung_up_controller, strangers.second_controller,
          strangers.another_controller_behind_the_address, strangers.second_worker, strangers.lying_worker,
          strangers.raving_worker, strangers.flood, strangers.half_sent_messages]


def test_no_trick_makes_it_lie_hang_or_crash(request, bin_dir, tmp_path):
    option = request.config.getoption
    seed = option("--seed")
    chosen = [trick for trick in TRICKS if not option("--tricks") or trick.__name__ in option("--tricks").split(",")]
    rng = random.Random(seed)
    if 0 < option("--sample") < len(chosen):
        chosen = rng.sample(chosen, option("--sample"))
    plays = [trick for trick in chosen for _ in range(option("--rounds"))]
    rng.shuffle(plays)
    if not option("--tricks") or strangers.mutated_specs.__name__ in option("--tricks").split(","):
        plays.append(strangers.mutated_specs)
    print(f"\n{len(plays)} plays")
    library = compile_into(tmp_path)
    table, failures = collections.Counter(), []
    cluster, storm = None, None
    for number, trick in enumerate(plays):
        try:
            if cluster is None:
                (tmp_path / f"cluster-{number}").mkdir()
                cluster = HostileCluster(bin_dir, tmp_path / f"cluster-{number}", library)
                storm = Storm(cluster, rng, option("--specs"))
            begin = time.monotonic()
            outcome = trick(storm)
            print(f"{number}: {trick.__name__}: {outcome} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception:
            outcome = "WRONG"
            failures.append(f"{number}: {trick.__name__}: {traceback.format_exc()}")
            print(failures[-1], flush=True)
            if cluster is not None:
                print("\n".join(f"{log.name}: {line}" for log in sorted(cluster.folder.glob("*.log"))
                                for line in log.read_text(errors="replace").splitlines()[-8:]), flush=True)
                with contextlib.suppress(Exception):
                    cluster.close()
                cluster = None
        table[(trick.__name__, outcome)] += 1
    if cluster is not None:
        try:
            storm.end_victim()
            cluster.check_new_job("last")
        except Exception:
            failures.append(f"at the end: {traceback.format_exc()}")
        cluster.close()
        for log in cluster.folder.glob("*.log"):
            assert "terminate called" not in log.read_text(errors="replace"), log
    for (name, outcome), count in sorted(table.items()):
        print(f"{count:5}  {name:40} {outcome}")
    if failures:
        pytest.fail(f"{len(failures)} of {len(plays)}; --seed {seed} --rounds {option('--rounds')} --sample {option('--sample')} draws them again\n"
                    + "\n".join(failures))
