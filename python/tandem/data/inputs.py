# SPDX-License-Identifier: Apache-2.0
"""Yields the documents of input files, one after the other, in bounded memory.

Input: files, folders (every file below that is not hidden) and globs, of JSON lines or of text, plain or compressed
with gzip or zstd, or of Parquet. Output: `Raw` documents in the order of the files' paths (bytewise), then of their
places.
"""
import dataclasses
import glob
import gzip
import json
import os
import stat
import zlib

import xxhash
import zstandard

from tandem.data.errors import DataError

BLOCK_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
PARQUET, PARQUET_SUFFIX = b"PAR1", ".parquet"
PARQUET_ROWS = 64  # in memory at a time
NOT_BUILT = {b"MMIDIDX\0": "an index of tokens", b"\x93NUMPY": "a numpy file"}


@dataclasses.dataclass
class Input:
    path: str
    bytes: int
    mtime_ns: int
    has_fields: bool  # JSON lines or Parquet; else it is one document of text


@dataclasses.dataclass
class Raw:
    """One document: a line of JSON, a row of Parquet as such a line, or a file of text, without BOM and end of line. `text` is None
    if it is longer than allowed."""
    line: int      # from 1
    end: int       # decoded bytes of the file up to and with its end of line; of Parquet, the line
    position: int  # bytes of the file on disk that had been read by then
    text: bytes


def find_inputs(patterns, form):
    """Returns the files as a sorted list of Input, and the number of hidden files that were skipped."""
    paths, hidden = set(), 0
    for pattern in patterns:
        found = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
        if not found:
            raise DataError(f"{pattern}: no such file or folder, and nothing matches it")
        for path in found:
            if not os.path.isdir(path):
                paths.add(os.path.abspath(path))
                continue
            for folder, folders, names in os.walk(path):
                hidden += sum(name.startswith(".") for name in (*folders, *names))
                folders[:] = [name for name in folders if not name.startswith(".")]
                paths.update(os.path.abspath(os.path.join(folder, name)) for name in names if not name.startswith("."))
    inputs = []
    for path in sorted(paths, key=os.fsencode):
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            raise DataError(f"{path}: it is not a regular file")
        inputs.append(Input(path, info.st_size, info.st_mtime_ns, _has_fields(path) if form == "auto" else form == "jsonl"))
    if not inputs:
        raise DataError(f"{', '.join(patterns)}: there is no file" + (f"; {hidden} hidden ones are skipped" if hidden else ""))
    return inputs, hidden


def _has_fields(path):
    for suffix in (".gz", ".zst"):
        path = path.removesuffix(suffix)
    return path.endswith((*JSON_SUFFIXES, PARQUET_SUFFIX))


class InputFile:
    """Reads one file once: iterate over its documents, then `digest` is XXH3-128 of it as it lies on the disk. Of Parquet
    it reads the columns `fields`."""

    def __init__(self, source, most_bytes, fields=()):
        self._source = source
        self._most = most_bytes
        self._fields = fields
        self._hash = xxhash.xxh3_128()
        self.position = 0
        self.digest = None

    def __iter__(self):
        try:
            with open(self._source.path, "rb") as self._file:
                beginning = self._file.read(64)
                self._file.seek(0)
                self._check(beginning)
                if beginning.startswith(PARQUET):
                    yield from self._parquet_rows()
                elif self._source.has_fields:
                    yield from self._json_lines(beginning)
                else:
                    yield from self._text(beginning)
                while self.read(BLOCK_BYTES):  # what a decompressor left
                    pass
        except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
            raise DataError(f"{self._source.path}: its compressed data cannot be read ({error}): it may be half of a "
                            "download; fetch it again") from error
        except OSError as error:
            raise DataError(f"{self._source.path}: cannot be read: {error.strerror or error}") from error
        if self.position != self._source.bytes:
            raise DataError(f"{self._source.path}: it had {self._source.bytes} bytes at the start and {self.position} "
                            "when it was read; prepare data that stay as they are")
        self.digest = self._hash.hexdigest()

    def read(self, size=-1):
        """For decompressors: bytes of the file itself."""
        block = self._file.read(size)
        self._hash.update(block)
        self.position += len(block)
        return block

    def _check(self, beginning):
        for magic, what in NOT_BUILT.items():
            if beginning.startswith(magic):
                raise DataError(f"{self._source.path}: it is {what}, which is not read; give JSON lines, Parquet or text")
        if beginning.startswith(b"version https://git-lfs"):
            raise DataError(f"{self._source.path}: it is a Git LFS pointer and not the file; run git lfs pull")
        if beginning.startswith(PARQUET) != self._source.path.endswith(PARQUET_SUFFIX) and self._source.bytes > 0:
            raise DataError(f"{self._source.path}: its name and its first bytes do not agree on whether it is Parquet; fetch it "
                            "again, or rename it")
        if beginning.startswith(PARQUET) and not self._source.has_fields:
            raise DataError(f"{self._source.path}: it is Parquet, and not one document of text; omit --format")

    def _blocks(self, beginning):
        if beginning.startswith(b"\x1f\x8b"):
            stream = gzip.GzipFile(fileobj=self, mode="rb")
        elif beginning.startswith(b"\x28\xb5\x2f\xfd"):
            stream = _WholeFrames(self)
        else:
            stream = self
        first = True
        while block := stream.read(BLOCK_BYTES):
            if first and stream is not self and block.startswith(PARQUET):
                raise DataError(f"{self._source.path}: it is compressed Parquet, which has compression of its own; decompress it")
            if first and len(block) < len(BOM):
                block += stream.read(BLOCK_BYTES)
            yield block
            first = False

    def _json_lines(self, beginning):
        kept, kept_bytes, line, end = [], 0, 1, 0
        skipped_bom = False
        for block in self._blocks(beginning):
            pieces = block.split(b"\n")
            for piece in pieces[:-1]:
                size = kept_bytes + len(piece)
                end += len(piece) + 1
                text = b"".join((*kept, piece)) if size <= self._most + 1 else None
                text, skipped_bom = _line(text, self._most, skipped_bom)
                yield Raw(line, end, self.position, text)
                kept, kept_bytes, line = [], 0, line + 1
            end += len(pieces[-1])
            kept_bytes += len(pieces[-1])
            if kept_bytes > self._most + 1:  # the rest of the line is read, and not kept
                kept = []
            elif pieces[-1]:
                kept.append(pieces[-1])
        if kept_bytes > 0:
            text = b"".join(kept) if kept_bytes <= self._most + 1 else None
            yield Raw(line, end, self.position, _line(text, self._most, skipped_bom)[0])

    def _parquet_rows(self):
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise DataError(f"{self._source.path}: Parquet needs the Python package pyarrow; run scripts/setup.sh --data, or pip "
                            'install "./python[data]", in a clone of Tandem') from error
        try:  # the open file, not its path, where there may be another by now
            with pyarrow.parquet.ParquetFile(self._file, buffer_size=BLOCK_BYTES) as file:
                names = file.schema_arrow.names
                for field in self._fields:
                    if names.count(field) != 1:
                        option = "--text-field" if field == self._fields[-1] else "--prompt-field"
                        raise DataError(f"{self._source.path}: it has {'several columns' if field in names else 'no column'} "
                                        f"{field}; name one of {', '.join(names)} with {option}")
                line = 0
                for rows in file.iter_batches(PARQUET_ROWS, columns=list(self._fields)):
                    for values in zip(*(map(_value, rows.column(field)) for field in self._fields)):
                        line += 1
                        text = json.dumps(dict(zip(self._fields, values)), ensure_ascii=False).encode()
                        yield Raw(line, line, self._source.bytes * line // file.metadata.num_rows,
                                  text if len(text) <= self._most else None)
            self._file.seek(0)  # what follows reads all of it for the digest
        except pyarrow.ArrowException as error:
            raise DataError(f"{self._source.path}: it cannot be read as Parquet ({error}): it may be half of a download; fetch it "
                            "again") from error

    def _text(self, beginning):
        kept, size = [], 0
        for block in self._blocks(beginning):
            size += len(block)
            kept = [*kept, block] if size <= self._most else []
        if size > 0:
            yield Raw(1, size, self.position, b"".join(kept).removeprefix(BOM) if size <= self._most else None)


class _WholeFrames:
    """Reads consecutive frames of zstd. The end of the file within a frame is an error, which the library's reader hides."""

    def __init__(self, file):
        self._file = file
        self._frame = None
        self._rest = b""

    def read(self, _size):
        while True:
            data = self._rest or self._file.read(BLOCK_BYTES)
            self._rest = b""
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends inside of a frame")
                return b""
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
            block = self._frame.decompress(data)
            if self._frame.eof:
                self._rest = self._frame.unused_data
                self._frame = None
            if block:
                return block


def _value(scalar):
    """Returns the text of a cell; None if it has none."""
    try:
        value = scalar.as_py()
    except UnicodeDecodeError:
        return None
    return value if isinstance(value, str) else None


def _line(text, most, skipped_bom):
    """Returns a line without the BOM of the file and without a carriage return at its end, and True: the BOM can only be first."""
    if text is not None:
        text = (text if skipped_bom else text.removeprefix(BOM)).removesuffix(b"\r")
        text = text if len(text) <= most else None
    return text, True
