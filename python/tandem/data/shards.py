# SPDX-License-Identifier: Apache-2.0
"""Shards in Megatron-LM's indexed format: NAME.bin has the tokens of all documents, NAME.idx their lengths and positions.
If some tokens are not targets, NAME.mask has a bit for each token: 1 if it is one."""
import array
import itertools
import os
import struct

import xxhash

TYPE_CODES = {"u16": (8, 2), "i32": (4, 4)}  # the format's code, bytes


class ShardWriter:
    """Writes one shard into `folder`, with a mask if `masks`. It is valid only after finish()."""

    def __init__(self, folder, name, token_type, masks=False):
        self.name = name
        self._prefix = os.path.join(folder, name)
        self._code, self._size = TYPE_CODES[token_type]
        self._lengths = array.array("i")
        self._hash = xxhash.xxh3_128()
        self._file = open(self._prefix + ".bin", "wb")
        self._mask = MaskWriter(self._prefix + ".mask") if masks else None
        self.bytes = 0

    def add(self, tokens, lengths, fronts):
        """Appends documents. fronts: how many tokens at the beginning of each are not targets; without a mask it is ignored."""
        self._file.write(tokens)
        self._hash.update(tokens)
        self._lengths.extend(lengths)
        self.bytes += len(tokens)
        if self._mask is not None:
            self._mask.add(lengths, fronts)

    def close(self):
        self._file.close()
        if self._mask is not None:
            self._mask.close()

    def finish(self):
        """Syncs the files to disk and returns the entry of the shard in dataset.json."""
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
        xxh3 = {"bin": self._hash.hexdigest(), "idx": xxhash.xxh3_128_hexdigest(index)}
        out = {"name": self.name, "documents": count, "tokens": self.bytes // self._size, "xxh3": xxh3}
        if self._mask is not None:
            xxh3["mask"] = self._mask.finish()
            out["counted"] = self._mask.counted
        return out


class MaskWriter:
    """Writes one bit for each token, the least significant bit of a byte first."""

    def __init__(self, path):
        self._file, self._hash = open(path, "wb"), xxhash.xxh3_128()
        self._rest = b""  # ASCII digits of bits that do not fill a byte yet
        self.counted = 0

    def add(self, lengths, fronts):
        bits = b"".join((self._rest, *(b"0" * front + b"1" * (length - front) for length, front in zip(lengths, fronts))))
        self.counted += sum(lengths) - sum(fronts)
        whole = len(bits) // 8 * 8
        self._rest = bits[whole:]
        self._write(bits[:whole])

    def close(self):
        self._file.close()

    def finish(self):
        """Syncs the file to disk and returns its digest."""
        self._write(self._rest)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._hash.hexdigest()

    def _write(self, bits):
        if bits:
            data = int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little")
            self._file.write(data)
            self._hash.update(data)


def is_whole(folder, shard):
    """Returns whether all files of a shard have the digests of its entry."""
    try:
        return all(digest_of(os.path.join(folder, f"{shard['name']}.{suffix}")) == digest for suffix, digest in shard["xxh3"].items())
    except FileNotFoundError:
        return False


def digest_of(path):
    digest = xxhash.xxh3_128()
    # A pipe of that name must not hang the reader.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
