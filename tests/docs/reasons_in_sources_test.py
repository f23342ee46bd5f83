# SPDX-License-Identifier: Apache-2.0
"""Every reason has one row in proto/reasons.h, and sources spell it only by ReasonCode, which looks for the row."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
header = (root / "proto/reasons.h").read_text()
rows = re.findall(r'Reason\{\s*"(\w+)",', header)
codes = set(rows)
problems = [f"proto/reasons.h: {code} has {rows.count(code)} rows" for code in sorted(codes) if rows.count(code) != 1]
# Words that are reasons elsewhere and something else here.
ordinary = {"Accepted", "Draining", "Fenced", "Finished", "Finishing", "Placed", "Preempted", "Ready", "Stopped",
            "Submitted", "Withdrawn"}
given = re.compile(r"""set_reason\("(\w+)"\)|\.?reason = "(\w+)"|Refusal\(\s*"(\w+)"|Own\("(\w+)\"""")
for folder in ("controller", "worker", "trainer", "cli"):
    for path in sorted((root / folder).rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        text = re.sub(r'//.*|ReasonCode\("\w+"\)', "", path.read_text())
        for match in re.finditer(r'"([A-Z][A-Za-z]+)"', text):
            if match.group(1) in codes - ordinary:
                problems.append(f"{path.relative_to(root)}: \"{match.group(1)}\" is proto::ReasonCode(\"{match.group(1)}\")")
        for match in given.finditer(text):
            code = next(filter(None, match.groups()))
            problems.append(f"{path.relative_to(root)}: the reason \"{code}\" belongs into proto/reasons.h")
print("\n".join(problems))
sys.exit(bool(problems) or not codes)
