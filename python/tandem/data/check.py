# SPDX-License-Identifier: Apache-2.0
"""`tandem data check`: checks every rule of token files, every digest in dataset.json, and every token."""
import os

from tandem.data.errors import DataError
from tandem.data.progress import Progress
from tandem.data.shards import digest_of
from tandem.data.token_files import BLOCK_BYTES, Index, open_tokens

MOST_PROBLEMS = 10  # of a file


def check(path, form="auto", token_type=None, vocabulary=None, say=print):
    """Prints each problem, or that there is none, and returns whether there is none. Raises DataError if the files at `path`
    cannot be read as tokens at all."""
    tokens = open_tokens(path, form, token_type)
    said = tokens.description
    limit = said["tokenizer"]["vocabulary"] if said else vocabulary
    if said and vocabulary is not None and limit > vocabulary:
        raise DataError(f"--vocabulary: the tokenizer of {path} has {limit} ids, more than {vocabulary}")
    progress = Progress(tokens.count, name="check")
    done = documents = problems = counted = 0
    for file in tokens.files:
        found = Problems(file, limit)
        index = _check_index(found) if file.index else None
        if said:
            _check_described(found, index, said)
            counted += _check_mask(found, said)
        for begin, block in file.blocks():
            found.check_tokens(begin, block)
            progress.show(done + begin + len(block), done + begin + len(block))
        done += file.count
        documents += index.sequences if index else 0
        progress.end()
        for line in found.lines():
            say(line)
        problems += found.count
    if said and not problems and said.get("counted") not in (None, counted):
        say(f"{path}: the masks have {counted} tokens that count, and dataset.json says {said['counted']}")
        problems += 1
    if problems:
        say(f"{path}: {problems} {'problem' if problems == 1 else 'problems'}")
        return False
    say(f"{path}: whole: {len(tokens.files)} {'file' if len(tokens.files) == 1 else 'files'} of {tokens.form}, "
        + (f"{documents} documents, " if documents else "") + f"{tokens.count} tokens"
        + (f" below {limit}" if limit is not None else "; give --vocabulary to compare them with a tokenizer's"))
    return True


class Problems:
    """The problems of one file; only the first are kept."""

    def __init__(self, file, limit):
        self.file, self._limit, self._kept, self.count = file, limit, [], 0

    def add(self, text, path=None):
        self.count += 1
        if len(self._kept) < MOST_PROBLEMS:
            self._kept.append(f"{path or self.file.path}: {text}")

    def lines(self):
        rest = self.count - len(self._kept)
        return self._kept + ([f"{self.file.path}: and {rest} more"] if rest else [])

    def check_tokens(self, begin, block):
        if min(block) >= 0 and (self._limit is None or max(block) < self._limit):
            return
        for number, token in enumerate(block, begin):
            if token < 0 or (self._limit is not None and token >= self._limit):
                self.add(f"token id {token} at byte {self.file.begin + number * self.file.item} is "
                         + ("less than 0" if token < 0 else f"not below the vocabulary, {self._limit}"))


def _check_index(found):
    file = found.file
    index = Index(file.index)
    end = 0  # end of the sequence before, in bytes
    for number, (length, pointer) in enumerate(zip(index.lengths(), index.pointers())):
        if length < 0:
            found.add(f"sequence {number} has {length} tokens", file.index)
            break
        if pointer != end:
            found.add(f"sequence {number} begins at byte {pointer}, and the one before it ends at {end}", file.index)
            break
        end += length * file.item
    else:
        if end != file.count * file.item:
            found.add(f"its sequences have {end} bytes, and {file.path} has {file.count * file.item}", file.index)
    before = None
    for number, first in enumerate(index.document_index()):
        if (before is None and first != 0) or (before is not None and first < before):
            found.add(f"entry {number} of its documents is {first}: they must rise from 0 to {index.sequences}", file.index)
            return index
        before = first
    if (before or 0) != index.sequences:
        found.add(f"its documents end with sequence {before or 0}, and it has {index.sequences}", file.index)
    return index


def _check_described(found, index, said):
    file, described = found.file, found.file.described
    for what, here, there in (("token type", file.type, said["token_type"]), ("tokens", file.count, described["tokens"]),
                              ("documents", index.sequences, described["documents"])):
        if here != there:
            found.add(f"{what}: {here}, and dataset.json says {there}")
    digests = described.get("xxh3")
    mask = file.path.removesuffix(".bin") + ".mask"
    for suffix, path in (("bin", file.path), ("idx", file.index), *([("mask", mask)] if os.path.isfile(mask) else [])):
        digest = digests.get(suffix) if isinstance(digests, dict) else None
        if digest is not None and digest_of(path) != digest:
            found.add(f"its content is not what dataset.json says (xxh3 {digest}): copy it again", path)


def _check_mask(found, said):
    """Checks the mask of a file, if it has one. Returns how many of its tokens count as targets."""
    path, wanted = found.file.path.removesuffix(".bin") + ".mask", said.get("counted") is not None
    if os.path.isfile(path) != wanted:
        found.add("it is missing, though dataset.json says how many tokens count" if wanted
                  else "it is there, though dataset.json does not say how many tokens count", path)
        return 0
    if not wanted:
        return 0
    if os.path.getsize(path) != (found.file.count + 7) // 8:
        found.add(f"it has {os.path.getsize(path)} bytes, and {found.file.count} tokens have {(found.file.count + 7) // 8}", path)
        return 0
    counted = 0
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        while block := file.read(BLOCK_BYTES):
            counted += int.from_bytes(block, "little").bit_count()
    return counted
