# SPDX-License-Identifier: Apache-2.0
"""Exports of checkpoints that a job makes while it trains (checkpoint.export)."""
import json
import shutil

from cluster import tiny_job


def export_job(name, folder, to, steps=8, keep=1):
    spec = tiny_job(name, steps=steps, directory=folder / "saved", every_steps=2)
    spec["checkpoint"].update(keep=keep, export={"every_steps": 4, "to": str(to)})
    return spec


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_job_exports_what_the_command_exports(start, tmp_path):
    cluster = start()
    cluster.submit(export_job("exporting", tmp_path, tmp_path / "out"))
    cluster.wait_state("exporting", "SUCCEEDED")
    assert names(tmp_path / "out") == ["step-4", "step-8"]
    cluster.cli("export", tmp_path / "saved" / "step-8", "--to", tmp_path / "by_hand")
    assert contents(tmp_path / "out" / "step-8") == contents(tmp_path / "by_hand")
    weights = (tmp_path / "out" / "step-4" / "model.safetensors").read_bytes()
    header = json.loads(weights[8:8 + int.from_bytes(weights[:8], "little")])
    assert {array["dtype"] for name, array in header.items() if name != "__metadata__"} == {"BF16"}
    assert not any("is not exported" in event.get("message", "") for event in cluster.events("exporting"))


def test_a_checkpoint_stays_while_it_is_exported(bin_dir, start, tmp_path):
    slow = tmp_path / "slow"
    slow.mkdir()
    shutil.copy(bin_dir / "tandem-trainer", slow)
    last = tmp_path / "saved" / "step-16"
    (slow / "tandem").write_text(f'#!/bin/sh\nwhile [ ! -e {last} ]; do sleep 0.05; done\nexec {bin_dir}/tandem "$@"\n')
    (slow / "tandem").chmod(0o755)
    cluster = start(workers=0, slots=2)
    cluster.start_worker("w0", "--trainer", slow / "tandem-trainer")
    cluster.submit(export_job("spared", tmp_path, tmp_path / "out", steps=16))
    cluster.wait_state("spared", "SUCCEEDED")
    assert names(tmp_path / "out") == ["step-12", "step-16", "step-4", "step-8"], cluster.why("spared")
    saved = [name for name in names(tmp_path / "saved") if name.startswith("step-")]
    assert saved == ["step-12", "step-16", "step-4", "step-8"], "those between them made way"


def test_job_with_failing_exports_continues_and_says_why(start, tmp_path):
    cluster = start()
    (tmp_path / "file").write_text("")
    cluster.submit(export_job("unwritable", tmp_path, tmp_path / "file" / "out"))
    cluster.wait_state("unwritable", "SUCCEEDED")
    messages = [event["message"] for event in cluster.events("unwritable") if "is not exported" in event.get("message", "")]
    assert [message.split(":")[0] for message in messages] == ["step 4 is not exported", "step 8 is not exported"]
    assert all("Not a directory" in message for message in messages), messages
