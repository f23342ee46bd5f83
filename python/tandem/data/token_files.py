# SPDX-License-Identifier: Apache-2.0
"""Reads files of tokens, made by `tandem data prepare` or by other programs: finds them, parses their headers, and yields their
tokens and documents a block at a time.

| form | files |
|---|---|
| prepared | a folder with dataset.json (data/dataset_json.h), shards of .bin and .idx |
| megatron | PATH.bin and PATH.idx of Megatron-LM, or a folder of such pairs |
| npy | a file, or a folder of files, of whole numbers in numpy's format |
| llmc | a file, or a folder of files, of llm.c |
| flat | a file of u16 or u32 without a header; the type must be given (--token-type) |

Everything here is little-endian and read in bounded memory.
"""
import array
import ast
import dataclasses
import json
import os
import stat
import struct

from tandem.data.errors import DataError

BLOCK_BYTES = 1 << 22
TYPES = {"u8": "B", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u16": "H", "u32": "I"}  # and their array.array
INDEX_MAGIC = b"MMIDIDX\0\0"
INDEX_TYPES = {1: "u8", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 8: "u16"}
INDEX_HEADER_BYTES = 34
NUMPY_MAGIC = b"\x93NUMPY"
NUMPY_TYPES = {"|u1": "u8", "|i1": "i8", "<i2": "i16", "<i4": "i32", "<i8": "i64", "<u2": "u16", "<u4": "u32"}
LLMC_HEADER_BYTES = 1024
LLMC = {(20240520, 1): "u16", (20240801, 7): "u32"}  # magic and version
LLMC_OF_ANSWERS = 20240522
MOST_DESCRIPTION_BYTES = 256 << 20


@dataclasses.dataclass
class TokenFile:
    path: str
    begin: int   # byte of the first token
    count: int   # tokens
    type: str    # of TYPES
    index: str = ""       # path of its .idx
    described: dict = None  # what dataset.json says of the shard

    @property
    def item(self):
        return array.array(TYPES[self.type]).itemsize

    def blocks(self, begin=0, count=None):
        """Yields (number of its first token, array of tokens) for each block, from token `begin` on."""
        end = self.count if count is None else min(self.count, begin + count)
        with _open(self.path) as file:
            file.seek(self.begin + begin * self.item)
            while begin < end:
                wanted = min(BLOCK_BYTES // self.item, end - begin)
                content = file.read(wanted * self.item)
                if len(content) != wanted * self.item:
                    raise DataError(f"{self.path}: it became shorter while it was read")
                yield begin, array.array(TYPES[self.type], content)
                begin += wanted


@dataclasses.dataclass
class Tokens:
    form: str
    path: str
    files: list
    description: dict = None  # dataset.json

    @property
    def count(self):
        return sum(file.count for file in self.files)


def open_tokens(path, form="auto", token_type=None):
    """Opens the files of tokens at `path`. Raises DataError."""
    if form == "flat":
        if token_type not in ("u16", "u32"):
            raise DataError("--token-type: --format flat needs u16 or u32: a file without a header does not say it")
        return Tokens("flat", path, [_flat(path, token_type)])
    if token_type is not None:
        raise DataError("--token-type: only with --format flat; other files say it themselves")
    if os.path.isdir(path):
        return _prepared(path) if os.path.exists(os.path.join(path, "dataset.json")) else _folder(path)
    for prefix in (path, *(path[:-4] for suffix in (".bin", ".idx") if path.endswith(suffix))):
        if os.path.isfile(prefix + ".idx") and os.path.isfile(prefix + ".bin"):
            return Tokens("megatron", prefix, [_pair(prefix)])
    found = _single(path)
    if found is None:
        raise DataError(f"{path}: it is none of: a folder with dataset.json, a pair of .bin and .idx, a .npy file, a file of llm.c; of "
                        "whole numbers without a header say --format flat --token-type u16 or u32")
    return Tokens(found[0], path, [found[1]])


def _open(path):
    """Opens a regular file; any other kind is an error, since reading a pipe would block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file or folder") from None
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise DataError(f"{path}: it is not a regular file")
    return file


def _begin(path, count):
    """Returns the first `count` bytes of a file, and its size."""
    with _open(path) as file:
        return file.read(count), os.fstat(file.fileno()).st_size


def _count(path, bytes_, begin, token_type):
    item = array.array(TYPES[token_type]).itemsize
    if (bytes_ - begin) % item:
        raise DataError(f"{path}: its {bytes_} bytes are no whole number of tokens of {item} bytes")
    return (bytes_ - begin) // item


def _flat(path, token_type):
    _, size = _begin(path, 0)
    return TokenFile(path, 0, _count(path, size, 0, token_type), token_type)


def _folder(path):
    names = sorted((name for name in os.listdir(path) if not name.startswith(".")), key=os.fsencode)
    pairs = [name[:-4] for name in names if name.endswith(".idx") and name[:-4] + ".bin" in names]
    rest = [name for name in names if name[:-4] not in pairs or name[-4:] not in (".idx", ".bin")]
    found = [("megatron", _pair(os.path.join(path, name))) for name in pairs]
    for name in rest:
        single = None if os.path.isdir(os.path.join(path, name)) else _single(os.path.join(path, name))
        if single is None:
            raise DataError(f"{os.path.join(path, name)}: it is no file of tokens; a folder without dataset.json must have nothing else")
        found.append(single)
    forms = sorted({form for form, _ in found})
    if len(forms) != 1:
        raise DataError(f"{path}: " + (f"it has files of {' and '.join(forms)}: name those of one" if forms else "there is no file"))
    types = sorted({file.type for _, file in found})
    if len(types) != 1:
        raise DataError(f"{path}: it has files of {' and '.join(types)}: name those of one")
    return Tokens(forms[0], path, [file for _, file in found])


def _single(path):
    """Returns (form, TokenFile) of a file whose header says what it is, or None."""
    begin, size = _begin(path, LLMC_HEADER_BYTES)
    if begin.startswith(NUMPY_MAGIC):
        return "npy", _numpy(path, size)
    if len(begin) == LLMC_HEADER_BYTES:
        magic, version, count = struct.unpack_from("<iii", begin)
        if magic == LLMC_OF_ANSWERS:
            raise DataError(f"{path}: it is llm.c's file of questions with answers, and no text to train on")
        if magic in (known for known, _ in LLMC):
            token_type = LLMC.get((magic, version))
            if token_type is None:
                raise DataError(f"{path}: it is of version {version} of llm.c's format, which this program does not know")
            if count < 0 or size - LLMC_HEADER_BYTES != count * array.array(TYPES[token_type]).itemsize:
                raise DataError(f"{path}: its header says {count} tokens of {token_type}, and it has {size - LLMC_HEADER_BYTES} bytes "
                                "behind the header")
            return "llmc", TokenFile(path, LLMC_HEADER_BYTES, count, token_type)
    return None


def _numpy(path, size):
    begin, _ = _begin(path, 12)
    if len(begin) < 12 or begin[6] not in (1, 2, 3):
        raise DataError(f"{path}: it is of a version of numpy's format that this program does not know, or cut off")
    length, at = (struct.unpack_from("<H", begin, 8)[0], 10) if begin[6] == 1 else (struct.unpack_from("<I", begin, 8)[0], 12)
    if length > 1 << 16:
        raise DataError(f"{path}: its header has {length} bytes, too many")
    header = _begin(path, at + length)[0][at:]
    try:
        said = ast.literal_eval(header.decode("latin-1"))
        descr, shape, fortran = said["descr"], said["shape"], said["fortran_order"]
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        raise DataError(f"{path}: its header is not numpy's") from None
    token_type = NUMPY_TYPES.get(descr) if isinstance(descr, str) else None
    if token_type is None:
        raise DataError(f"{path}: it has numbers of type {descr}; allowed: {', '.join(sorted(NUMPY_TYPES))}")
    if not isinstance(shape, tuple) or not all(isinstance(dim, int) and dim >= 0 for dim in shape) or (fortran and len(shape) > 1):
        raise DataError(f"{path}: it is no array of rows that follow each other")
    count = 1
    for dim in shape:
        count *= dim
    file = TokenFile(path, at + length, count, token_type)
    if size - file.begin != count * file.item:
        raise DataError(f"{path}: its header says {count} tokens of {token_type}, and it has {size - file.begin} bytes behind the header")
    return file


def _pair(prefix, described=None):
    index = Index(prefix + ".idx")
    _, size = _begin(prefix + ".bin", 0)
    return TokenFile(prefix + ".bin", 0, _count(prefix + ".bin", size, 0, index.type), index.type, prefix + ".idx", described)


class Index:
    """A .idx of Megatron-LM. Its header is checked, the arrays after it are not."""

    def __init__(self, path):
        begin, size = _begin(path, INDEX_HEADER_BYTES)
        self.path = path
        if len(begin) < INDEX_HEADER_BYTES or not begin.startswith(INDEX_MAGIC):
            raise DataError(f"{path}: it is no index of Megatron-LM")
        version, code, self.sequences, self.documents = struct.unpack_from("<QBQQ", begin, len(INDEX_MAGIC))
        if version != 1:
            raise DataError(f"{path}: it is of version {version}, and this program reads 1")
        if code not in INDEX_TYPES:
            raise DataError(f"{path}: its tokens are of type {code}, which are no whole numbers, or unknown")
        self.type = INDEX_TYPES[code]
        self.pointers_at = INDEX_HEADER_BYTES + 4 * self.sequences
        self.documents_at = self.pointers_at + 8 * self.sequences
        expected = self.documents_at + 8 * self.documents
        if size not in (expected, expected + self.sequences):  # larger if it has modes
            raise DataError(f"{path}: it has {size} bytes, and {self.sequences} sequences and {self.documents} entries of documents "
                            f"take {expected}")

    def lengths(self):
        return self._array("i", INDEX_HEADER_BYTES, self.sequences)

    def pointers(self):
        return self._array("q", self.pointers_at, self.sequences)

    def document_index(self):
        return self._array("q", self.documents_at, self.documents)

    def _array(self, code, begin, count):
        item = array.array(code).itemsize
        with _open(self.path) as file:
            file.seek(begin)
            while count > 0:
                content = file.read(min(BLOCK_BYTES, count * item))
                if not content or len(content) % item:
                    raise DataError(f"{self.path}: it became shorter while it was read")
                numbers = array.array(code, content)
                count -= len(numbers)
                yield from numbers


def _prepared(folder):
    path = os.path.join(folder, "dataset.json")
    content, size = _begin(path, MOST_DESCRIPTION_BYTES)
    try:
        if size > MOST_DESCRIPTION_BYTES:
            raise ValueError("it is too large")
        said = json.loads(content)
        if not isinstance(said, dict) or said.get("format") != "tandem-dataset":
            raise ValueError('its "format" is not "tandem-dataset"')
        if said.get("version") != 1:
            raise ValueError(f"it is of version {json.dumps(said.get('version'))}, and this program reads 1")
        _check_description(said)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: {error}") from None
    return Tokens("prepared", folder, [_pair(os.path.join(folder, shard["name"]), shard) for shard in said["shards"]], said)


def _check_description(said):
    """Raises ValueError if dataset.json breaks its schema (data/dataset_json.h)."""
    tokenizer = said.get("tokenizer")
    if not isinstance(tokenizer, dict) or tokenizer.get("kind") not in ("huggingface", "bytes"):
        raise ValueError("tokenizer.kind must be huggingface or bytes")
    if not _is_count(tokenizer.get("vocabulary")):
        raise ValueError("tokenizer.vocabulary must be an integer of at least 1")
    for key in ("bos", "eos", "pad"):
        known = tokenizer.get(key)
        if known is not None and (type(known) is not int or not 0 <= known < tokenizer["vocabulary"]):
            raise ValueError(f"tokenizer.{key} must be an id below the vocabulary, or null")
    if said.get("token_type") not in ("u16", "i32"):
        raise ValueError("token_type must be u16 or i32")
    shards = said.get("shards")
    if not isinstance(shards, list) or not shards:
        raise ValueError("shards must be a list of at least one shard")
    names = set()
    for number, shard in enumerate(shards):
        name = shard.get("name") if isinstance(shard, dict) else None
        if not isinstance(name, str) or not name or name.startswith(".") or "/" in name or "\0" in name or name in names:
            raise ValueError(f"shards[{number}].name must be the name of a file in this folder, without .bin, that is not there already")
        names.add(name)
        for key in ("documents", "tokens"):
            if not _is_count(shard.get(key)):
                raise ValueError(f"shards[{number}].{key} must be an integer of at least 1")
    for key in ("documents", "tokens"):
        total = sum(shard[key] for shard in shards)
        if said.get(key) != total:
            raise ValueError(f"{key} must be the sum over the shards, {total}, and is {json.dumps(said.get(key))}")


def _is_count(value):
    return type(value) is int and 1 <= value < 1 << 48
