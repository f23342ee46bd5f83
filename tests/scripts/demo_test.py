#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/demo.sh builds and runs on a machine with the GPUs that nvidia-smi names: the script itself, with
programs in the place of nvidia-smi, of the build and of tandem that write down how they were called.

Usage: demo_test.py REPOSITORY
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(sys.argv.pop(1)).resolve()
NEW = "580.159.04"

BUILD = """#!/bin/sh
echo "$@" >built
mkdir -p build/release/bin
cat >build/release/bin/tandem <<'END'
#!/bin/sh
echo "$@" >ran
echo "${CUDA_VISIBLE_DEVICES-unset}" >visible
END
chmod +x build/release/bin/tandem
"""


class Machine:
    """A folder with the script, and a path on which nvidia-smi prints `gpus` (none: there is no such program)."""

    def __init__(self, folder, gpus=None, status=0):
        self.root = pathlib.Path(folder)
        for name in ("scripts", "path"):
            (self.root / name).mkdir()
        shutil.copytree(REPOSITORY / "examples", self.root / "examples")
        shutil.copy(REPOSITORY / "scripts/demo.sh", self.root / "scripts")
        self.program("scripts/build.sh", BUILD)
        for tool in ("dirname", "find", "sort", "tail", "date", "mkdir", "sed", "cat", "chmod", "sh", "bash"):
            (self.root / "path" / tool).symlink_to(shutil.which(tool))
        if gpus is not None:
            lines = "\n".join(f"{index}, {driver}, {capability}" for index, (driver, capability) in enumerate(gpus)) or "No devices were found"
            self.program("path/nvidia-smi", f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\nexit {status}\n")

    def program(self, name, text):
        (self.root / name).write_text(text)
        (self.root / name).chmod(0o755)

    def run(self, *arguments, visible=None):
        environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        environment["PATH"] = str(self.root / "path")
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        return subprocess.run(["scripts/demo.sh", *arguments], cwd=self.root, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def demo(self, *arguments, visible=None):
        done = self.run(*arguments, visible=visible)
        assert done.returncode == 0, done.stderr
        self.said = done.stderr
        self.built, self.ran, self.visible = ((self.root / name).read_text().strip() for name in ("built", "ran", "visible"))
        job = (self.root / re.search(r"-f (\S+)", self.ran)[1]).read_text()
        self.ranks = int(re.search(r"^  ranks: (\d+)$", job, re.M)[1])


class DemoTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def on_cpus(self, machine):
        self.assertNotIn("cuda", machine.built)
        self.assertIn("--workers 2 --slots 1", machine.ran)
        self.assertEqual((machine.ranks, machine.visible), (2, ""))

    def on_gpus(self, machine, ranks, visible):
        self.assertIn("--cuda", machine.built)
        self.assertIn("tandem-trainer-cuda", machine.built)
        self.assertIn("--workers 1", machine.ran)
        self.assertEqual((machine.ranks, machine.visible), (ranks, visible))

    def test_trains_on_cpus_without_a_driver(self):
        machine = Machine(self.folder)
        machine.demo()
        self.on_cpus(machine)
        self.assertEqual(machine.said, "")

    def test_trains_one_rank_on_one_gpu(self):
        machine = Machine(self.folder, [(NEW, "9.0")])
        machine.demo()
        self.on_gpus(machine, 1, "0")

    def test_trains_two_ranks_on_two_gpus(self):
        machine = Machine(self.folder, [(NEW, "9.0")] * 2)
        machine.demo()
        self.on_gpus(machine, 2, "0,1")

    def test_trains_experts_on_cpus_beside_one_gpu(self):
        machine = Machine(self.folder, [(NEW, "9.0")])
        machine.demo("--moe")
        self.on_cpus(machine)

    def test_old_driver_trains_on_cpus_and_is_reported(self):
        machine = Machine(self.folder, [("550.54.15", "9.0")])
        machine.demo()
        self.on_cpus(machine)
        self.assertIn("CUDA 13 needs a driver 580 or later, and this one is 550.54.15", machine.said)

    def test_unsupported_gpu_is_skipped_and_reported(self):
        machine = Machine(self.folder, [(NEW, "7.5"), (NEW, "8.6")])
        machine.demo()
        self.on_gpus(machine, 1, "1")
        self.assertIn("not on GPU 0: its compute capability is 7.5", machine.said)

    def test_failing_nvidia_smi_is_shown_and_cpus_train(self):
        machine = Machine(self.folder, [], status=9)
        machine.demo()
        self.on_cpus(machine)
        self.assertIn("nvidia-smi fails: No devices were found", machine.said)

    def test_trains_on_the_gpus_that_the_user_names(self):
        machine = Machine(self.folder, [(NEW, "9.0")] * 2)
        machine.demo(visible="1")
        self.on_gpus(machine, 1, "1")

    def test_empty_cuda_visible_devices_trains_on_cpus(self):
        machine = Machine(self.folder, [(NEW, "9.0")] * 2)
        machine.demo(visible="")
        self.on_cpus(machine)

    def test_takes_its_options_in_any_order(self):
        machine = Machine(self.folder)
        machine.demo("--torch", "/opt/libtorch", "--moe")
        self.assertIn("--torch /opt/libtorch", machine.built)
        self.assertIn("headers-moe", (machine.root / re.search(r"-f (\S+)", machine.ran)[1]).read_text())

    def test_unknown_arguments_are_refused_before_the_build(self):
        machine = Machine(self.folder)
        for arguments, said in ((("--mo",), "demo: unknown argument '--mo'; see scripts/demo.sh --help\n"),
                                (("--torch",), "demo: --torch needs a folder\n")):
            done = machine.run(*arguments)
            self.assertEqual((done.returncode, done.stderr), (2, said))
            self.assertFalse((machine.root / "built").exists())


if __name__ == "__main__":
    unittest.main()
