# SPDX-License-Identifier: Apache-2.0
"""What a job leaves behind, as a dictionary of texts and bytes, and how two of them differ."""
import json
import struct

TIMED = ("seconds",)  # numbers of a step that depend on the clock


def metrics(directory):
    """"step 3 loss" → the digits that the job wrote."""
    found = {}
    for line in (directory / "metrics.jsonl").read_text().splitlines():
        numbers = json.loads(line, parse_float=str)
        for name, value in numbers.items():
            if name not in ("step", *TIMED) and "second" not in name:
                found[f"step {numbers['step']} {name}"] = value
    return found


def lines_of(text, step, kind, key):
    """The rows of `tandem norms -o json` or `tandem metrics --moe -o json` of one step, a number each."""
    found = {}
    for line in text.splitlines():
        row = json.loads(line, parse_float=str)
        for name, value in row.items():
            if name not in ("step", "shape", key):
                found[f"step {step} {kind} {row[key]} {name}"] = value
    return found


def tensors(path):
    """Name → bytes of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    begin = 8 + length
    return {name: data[begin + tensor["data_offsets"][0]:begin + tensor["data_offsets"][1]]
            for name, tensor in header.items() if name != "__metadata__"}


BYTES = {"F64": 8, "I64": 8, "F32": 4, "BF16": 2, "U8": 1}


def rows_of(shape, box):
    """The first element of the whole array of each row of a slice, in the slice's order; a row's elements follow each
    other in both."""
    starts = [0]
    for size, (begin, end) in zip(shape[:-1], box):
        starts = [start * size + index for start in starts for index in range(begin, end)]
    return [start * shape[-1] + box[-1][0] for start in starts]


def joined(array, pieces):
    """All elements of an array. pieces: the bytes of each of its pieces."""
    size = BYTES[array["dtype"]]
    shape = array.get("shape") or [array["elements"]]
    slices = {}
    for piece, data in zip(array["pieces"], pieces):
        slices.setdefault(str(piece.get("slice")), []).append((piece["begin"], piece.get("slice"), data))
    whole = bytearray()
    for found in slices.values():
        content = b"".join(data for _, _, data in sorted(found, key=lambda piece: piece[0]))
        box = found[0][1]
        if box is None:
            return content
        row = (box[-1][1] - box[-1][0]) * size
        for index, start in enumerate(rows_of(shape, box)):
            whole.extend(bytes(max(0, start * size + row - len(whole))))
            whole[start * size:start * size + row] = content[index * row:(index + 1) * row]
    return bytes(whole)


def arrays(checkpoint):
    """Name → all elements of every array of a checkpoint, put together from its pieces whoever saved them, whatever the
    version of its manifest: 2 names an array of moments like its tensor, 3 gives its kind apart."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    files = [tensors(checkpoint / file["name"]) for file in manifest["files"]]
    found = {}
    for array in manifest["arrays"]:
        name = array["name"]
        if array.get("kind", "weight") not in ("weight", "state"):
            name += "/" + array["kind"]
        found[f"{name} ({array['dtype']})"] = joined(array, [files[piece["file"]][name] for piece in array["pieces"]])
    return found


def differences(old, new):
    """One line for each thing that is not the same in both."""
    found = []
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in old or name not in new:
            found.append(f"{name}: only in the {'old' if name in old else 'new'} build")
        elif old[name] != new[name]:
            if isinstance(old[name], bytes):
                first = next((i for i, (a, b) in enumerate(zip(old[name], new[name])) if a != b), None)
                found.append(f"{name}: {len(old[name])} and {len(new[name])} bytes" if first is None
                             else f"{name}: other bytes from byte {first} of {len(old[name])} on")
            else:
                found.append(f"{name}: {old[name]}, and {new[name]} in the new build")
    return found
