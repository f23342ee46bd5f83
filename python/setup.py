# SPDX-License-Identifier: Apache-2.0
"""Generates tandem/v1 from the protos of the service; in a source archive they are in proto/, in a clone beside this folder."""
import pathlib
import re
import shutil

import setuptools
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
PROTOS = HERE / "proto" if (HERE / "proto").is_dir() else HERE.parent / "proto"
NAMES = ("job", "report", "state", "jobs")  # what users call; workers and trainers have protocols of their own


def version():
    own = HERE / "VERSION"
    if own.exists():
        return own.read_text().strip()
    return re.search(r"project\(tandem VERSION ([\d.]+)", (HERE.parent / "CMakeLists.txt").read_text()).group(1)


class Generate(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:
            from grpc_tools import protoc
            out = pathlib.Path(self.build_lib)
            files = [f"tandem/v1/{name}.proto" for name in NAMES]
            well_known = pathlib.Path(protoc.__file__).parent / "_proto"
            failed = protoc.main(["protoc", f"-I{PROTOS}", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}", *files])
            if failed:
                raise SystemExit(f"protoc failed on {files} in {PROTOS}")
            (out / "tandem/v1/__init__.py").touch()


class Pack(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        base = pathlib.Path(base_dir)
        for name in NAMES:
            target = base / f"proto/tandem/v1/{name}.proto"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PROTOS / f"tandem/v1/{name}.proto", target)
        (base / "VERSION").write_text(version() + "\n")


setuptools.setup(version=version(), packages=["tandem", "tandem.data", "tandem.follow"], cmdclass={"build_py": Generate, "sdist": Pack})
