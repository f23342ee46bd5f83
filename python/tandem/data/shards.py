# SPDX-License-Identifier: Apache-2.0
"""Shards in Megatron-LM's indexed format: NAME.bin has the tokens of all documents, NAME.idx their lengths and places."""
import array
import itertools
import os
import struct

import xxhash

TYPE_CODES = {"u16": (8, 2), "i32": (4, 4)}  # the format's code, bytes


class ShardWriter:
    """Writes one shard into `folder`. Nothing of it counts before finish()."""

    def __init__(self, folder, name, token_type):
        self.name = name
        self._prefix = os.path.join(folder, name)
        self._code, self._size = TYPE_CODES[token_type]
        self._lengths = array.array("i")
        self._hash = xxhash.xxh3_128()
        self._file = open(self._prefix + ".bin", "wb")
        self.bytes = 0

    def add(self, tokens, lengths):
        self._file.write(tokens)
        self._hash.update(tokens)
        self._lengths.extend(lengths)
        self.bytes += len(tokens)

    def close(self):
        self._file.close()

    def finish(self):
        """Both files are on the disk. Returns what dataset.json says of the shard."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        count = len(self._lengths)
        ends = itertools.accumulate((length * self._size for length in self._lengths), initial=0)
        pointers = array.array("q", itertools.islice(ends, count))
        index = b"".join((b"MMIDIDX\0\0", struct.pack("<QBQQ", 1, self._code, count, count + 1), self._lengths.tobytes(),
                          pointers.tobytes(), array.array("q", range(count + 1)).tobytes()))
        with open(self._prefix + ".idx", "wb") as file:
            file.write(index)
            file.flush()
            os.fsync(file.fileno())
        return {"name": self.name, "documents": count, "tokens": self.bytes // self._size,
                "xxh3": {"bin": self._hash.hexdigest(), "idx": xxhash.xxh3_128_hexdigest(index)}}


def is_whole(folder, shard):
    """Whether both files are what the description says."""
    for suffix in ("bin", "idx"):
        digest = xxhash.xxh3_128()
        try:
            with open(os.path.join(folder, f"{shard['name']}.{suffix}"), "rb") as file:
                while block := file.read(1 << 22):
                    digest.update(block)
        except FileNotFoundError:
            return False
        if digest.hexdigest() != shard["xxh3"][suffix]:
            return False
    return True
