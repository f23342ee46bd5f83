# SPDX-License-Identifier: Apache-2.0
"""Wall clocks that jump and disks that are slow or full, for one process: see faulty_libc.c."""
import contextlib
import mmap
import pathlib
import struct
import subprocess

LAYOUT = struct.Struct("<qqqqq")


def compile_into(folder):
    """The library, built with the compiler that every machine which can build this has."""
    library = pathlib.Path(folder) / "faulty_libc.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o", library,
                    pathlib.Path(__file__).with_name("faulty_libc.c"), "-ldl"], check=True)
    return library


class Faults:
    """What is wrong with the clock and the disk of the processes that run with `environment`."""

    def __init__(self, library, path):
        pathlib.Path(path).write_bytes(bytes(mmap.PAGESIZE))
        with open(path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.environment = {"LD_PRELOAD": str(library), "TANDEM_FAULTS": str(path)}

    def set(self, clock=0.0, sync=0.0, write=0.0, error=0, folder=0):
        """Seconds that the clock is ahead, that syncs and writes take longer; what writes and a folder's fsync fail with."""
        self.page[:LAYOUT.size] = LAYOUT.pack(int(clock * 1e9), int(sync * 1e9), int(write * 1e9), error, folder)

    @property
    def slow_syncs(self):
        """How many slow syncs of a controller's store have begun."""
        return struct.unpack_from("<q", self.page, LAYOUT.size)[0]

    @contextlib.contextmanager
    def with_faults(self, **faults):
        self.set(**faults)
        try:
            yield
        finally:
            self.set()
