#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What waits goes by a clock that nobody sets: finds waits and deadlines by the machine's clock in the product.

A deadline by the wall clock comes early, or an hour late, when somebody sets the machine's clock. Use
platform::SteadyClock or platform::SteadyCondition.

Usage: clocks_test.py REPOSITORY [--expect-violation]   (the second form is the test of this test)
"""
import pathlib
import re
import sys

FOLDERS = ("checkpoint", "cli", "comm", "config", "controller", "data", "device", "fsdp", "jobspec", "link", "model",
           "ops", "parallel", "plan", "platform", "schedules", "tls", "trainer", "worker")
# absl's timed waits and std's wait_until end at a time of the machine's clock, whatever they are given.
WALL_CLOCK = re.compile(r"absl::Now\(\)|system_clock|CLOCK_REALTIME|\bwait_until\(|\btry_lock_until\("
                        r"|(Await|Wait)With(Deadline|Timeout)|\bgettimeofday\(|\btime\((NULL|nullptr|0)\)")
# File, without the rooms between its folder and it → how many lines of it may, and why.
ALLOWED = {
    "platform/clock.cc": (1, "where SteadyClock starts"),
    "platform/log.cc": (1, "the time of a line"),
    "trainer/trainer_process.cc": (1, "the time of a cause"),
    "trainer/profiling.cc": (1, "the time of a profile"),
    "cli/certs.cc": (3, "a certificate is valid by the wall clock"),
    "cli/client.cc": (2, "gRPC takes a wall time and counts from then on by CLOCK_MONOTONIC"),
    "cli/error.cc": (1, "as cli/certs.cc"),
    "cli/follow.cc": (1, "as cli/client.cc"),
    "controller/json_api.cc": (3, "as cli/client.cc"),
    "controller/daemon.cc": (1, "as cli/client.cc"),
    "tls/client_tls.cc": (1, "a certificate is valid by the wall clock"),
    "tls/server_tls.cc": (1, "as tls/client_tls.cc"),
    "controller/front_door.cc": (1, "as tls/client_tls.cc"),
    "worker/controller_client.cc": (1, "as cli/client.cc"),
}


def violations(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
                continue
            lines = [(number, line.strip()) for number, line in enumerate(path.read_text().splitlines(), 1)
                     if WALL_CLOCK.search(line.split("//")[0])]
            allowed, _ = ALLOWED.get(f"{folder}/{path.name}", (0, ""))
            if len(lines) > allowed:
                for number, line in lines:
                    yield f"{path.relative_to(root)}:{number}: by the wall clock (allowed in this file: {allowed}): {line}"


def main():
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found))
    return 0 if bool(found) == ("--expect-violation" in sys.argv) else 1


if __name__ == "__main__":
    sys.exit(main())
