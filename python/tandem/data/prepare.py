# SPDX-License-Identifier: Apache-2.0
"""`tandem data prepare`: makes a folder of shards and dataset.json (data/dataset_json.h has its schema) from files of text.

The parent reads files and cuts them into parts, processes tokenise the parts, and the parent writes the tokens in the
order of the input. A part is up to PART_BYTES of consecutive documents; a shard is consecutive parts. Both depend only on
the input and the options, and so does the output.

The files are written in OUT.tmp.PID, which is renamed at the end. Its journal.jsonl has a header (options and inputs), and
a line for each finished shard: another run verifies these shards and continues after them.
"""
import collections
import contextlib
import dataclasses
import fcntl
import glob
import json
import os
import shutil

from tandem.data import shards
from tandem.data.errors import DataError
from tandem.data.inputs import InputFile, find_inputs
from tandem.data.processes import Processes
from tandem.data.progress import Progress
from tandem.data.tokenizer import Tokenizer
from tandem.version import version

PART_BYTES = 1 << 20
MOST_LEFT_OUT = 0.05
EXAMPLES = 10  # of each kind of document that is left out


@dataclasses.dataclass
class Options:
    inputs: list
    out: str
    tokenizer: str
    text_field: str = "text"
    prompt_field: str = ""  # field of a text before the other, whose tokens are not targets; "": none
    format: str = "auto"  # or jsonl, text
    bos: str = "none"
    eos: str = "auto"
    parse_special: bool = False
    max_document: int = 64 << 20  # bytes
    shard: int = 2 << 30          # bytes of tokens
    processes: int = 0            # 0: as many as there are processors
    strict: bool = False
    lenient: bool = False


@dataclasses.dataclass
class Part:
    places: list       # (file, line) of each document
    raws: list         # bytes of each; None: too long
    has_fields: bool
    end: tuple         # (file, Raw.end) of its last document
    position: int      # bytes of all files that had been read by then


def prepare(options, say=print):
    """Makes the folder options.out. Raises DataError; on KeyboardInterrupt finished shards are kept for another run."""
    tokenizer = Tokenizer(options.tokenizer, options.bos, options.eos, options.parse_special)
    inputs, hidden = find_inputs(options.inputs, options.format)
    if hidden:
        say(f"prepare: {hidden} hidden files and folders are skipped")
    if options.prompt_field:
        if options.prompt_field == options.text_field:
            raise DataError(f"--prompt-field: {options.prompt_field} is the --text-field, too; name two fields")
        text = next((file.path for file in inputs if not file.has_fields), None)
        if text is not None:
            raise DataError(f"--prompt-field: {text} is one document of text, without fields; give JSON lines or Parquet alone, or --format jsonl")
    if os.path.lexists(options.out):
        raise DataError(f"--out: {options.out}: it is there already; remove it, or name another folder")
    with Work(options, tokenizer, inputs, say) as work:
        return work.run()


class Work:
    """One run of prepare, in its temporary folder."""

    def __init__(self, options, tokenizer, inputs, say):
        self._options, self._tokenizer, self._inputs, self._say = options, tokenizer, inputs, say
        self._out = os.path.abspath(options.out)
        self._fields = (options.prompt_field, options.text_field) if options.prompt_field else (options.text_field,)
        self._settings = {"text_field": options.text_field, **({"prompt_field": options.prompt_field} if options.prompt_field else {}), "format": options.format, "bos": options.bos, "eos": options.eos,
                          "parse_special": options.parse_special, "max_document": options.max_document, "shard": options.shard}
        self._header = {"version": version(), "options": self._settings, "tokenizer": tokenizer.describe(),
                        "inputs": [[file.path, file.bytes, file.mtime_ns] for file in inputs]}
        self._shards = []
        self._files = [{"documents": 0, "left_out": {}} for _ in inputs]
        self._examples = {}
        self._start = (0, 0)  # file and Raw.end of the last document of the last finished shard
        self._touched = set()  # files whose newest counts are not in the journal
        self._shard = None
        self._folder = f"{self._out}.tmp.{os.getpid()}"
        self._owns_folder = False  # if so, an error removes what is not finished
        self._journal = None  # locked while it is open

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self._journal is not None:
            self._journal.close()
        if self._shard is not None:
            self._shard.close()
        if kind is None or not self._owns_folder or not os.path.isdir(self._folder):
            return
        # Removes everything but finished shards.
        if not self._shards:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        self._remove_what_is_not_finished()
        self._say(f"prepare: {len(self._shards)} finished shards are kept in {self._folder}: the same command goes on "
                  "behind them")

    def _path(self, name):
        return os.path.join(self._folder, name)

    def _note(self, entry):
        self._journal.write(json.dumps(entry) + "\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def _remove_what_is_not_finished(self):
        keep = {"journal.jsonl", *(f"{shard['name']}.{suffix}" for shard in self._shards for suffix in shard["xxh3"])}
        for name in os.listdir(self._folder):
            if name not in keep:
                os.unlink(self._path(name))

    def _open_folder(self):
        try:
            os.makedirs(os.path.dirname(self._out), exist_ok=True)
        except OSError as error:
            raise DataError(f"--out: {self._out}: {error.strerror}") from error
        if not self._adopt():
            self._owns_folder = True
            try:
                os.mkdir(self._folder)
            except FileExistsError:
                self._owns_folder = False
                raise DataError(f"--out: {self._folder} is there, and cannot be read; remove it, or wait for the run that makes "
                                "it") from None
            self._journal = open(self._path("journal.jsonl"), "a+", encoding="utf-8")
            fcntl.flock(self._journal, fcntl.LOCK_EX)
            self._note(self._header)

    # ------------------------------------------------------------------ what an earlier run left

    def _adopt(self):
        for folder in sorted(glob.glob(f"{glob.escape(self._out)}.tmp.*")):
            try:
                journal = open(os.path.join(folder, "journal.jsonl"), "a+", encoding="utf-8")
            except OSError:
                continue
            try:
                fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                journal.close()
                raise DataError(f"--out: process {folder.rpartition('.')[2]} is making {self._out} now; wait for it") from None
            journal.seek(0)
            lines = journal.read().splitlines(keepends=True)
            if not lines or not lines[0].endswith("\n"):
                journal.close()
                shutil.rmtree(folder)  # it was stopped before it did anything
                continue
            if json.loads(lines[0]) != self._header:
                journal.close()
                raise DataError(f"--out: {folder} holds a part of a dataset that other options, inputs or another version have "
                                f"made; repeat that command, or remove the folder")
            os.rename(folder, self._folder)
            self._journal = journal
            self._go_on(lines[0], lines[1:])
            return True
        return False

    def _go_on(self, header, lines):
        end, entries = len(header.encode()), []
        for line in lines:
            entry = json.loads(line) if line.endswith("\n") else None  # None: it was stopped while it wrote this line
            if entry is None or not shards.is_whole(self._folder, entry["shard"]):
                break
            entries.append(entry)
            end += len(line.encode())
        for entry in entries:
            self._shards.append(entry["shard"])
            self._start = tuple(entry["end"])
            self._examples = entry["examples"]
            for index, record in entry["files"].items():
                self._files[int(index)] = record
        self._owns_folder = True  # not before: a run that is stopped here leaves what it found
        self._journal.truncate(end)
        self._remove_what_is_not_finished()
        if entries:
            self._say(f"prepare: goes on behind {len(entries)} finished shards")

    # ------------------------------------------------------------------ the work

    def run(self):
        self._open_folder()
        before = sum(file.bytes for file in self._inputs[:self._start[0]])
        progress = Progress(sum(file.bytes for file in self._inputs), already=before)
        tokens = sum(shard["tokens"] for shard in self._shards)
        try:
            with contextlib.closing(self._tokenized()) as tokenized:
                for part, (data, lengths, fronts, left_out) in tokenized:
                    self._add(part, data, lengths, fronts, left_out)
                    tokens += sum(lengths)
                    progress.show(part.position, tokens)
        finally:
            progress.end()
        if self._shard is not None:
            self._finish_shard(self._end)
        return self._commit()

    def _tokenized(self):
        """Yields parts and their results, in order."""
        most = self._options.processes or len(os.sched_getaffinity(0))
        number = min(most, 1 + sum(file.bytes for file in self._inputs) // PART_BYTES)
        tokenizer = {"path": self._tokenizer.path, "bos": self._options.bos, "eos": self._options.eos,
                     "parse_special": self._options.parse_special}
        with Processes(number, tokenizer, self._fields) as processes:
            yield from processes.results(self._parts())

    def _parts(self):
        part, size, position = None, 0, 0
        for index, source in enumerate(self._inputs):
            file_begin = position
            position += source.bytes
            if index < self._start[0]:
                continue
            file = InputFile(source, self._options.max_document, self._fields)
            for raw in file:
                if (index, raw.end) <= self._start:
                    continue
                length = 0 if raw.text is None else len(raw.text)
                if source.has_fields and raw.text is not None and not raw.text.strip():
                    continue  # a blank line is no document
                if part is not None and (size + length > PART_BYTES or part.has_fields != source.has_fields):
                    yield part
                    part = None
                if part is None:
                    part, size = Part([], [], source.has_fields, (0, 0), 0), 0
                part.places.append((index, raw.line))
                part.raws.append(raw.text)
                part.end = (index, raw.end)
                part.position = file_begin + raw.position
                size += length
            self._files[index]["xxh3"] = file.digest
            self._touched.add(index)
        if part is not None:
            yield part

    def _add(self, part, data, lengths, fronts, left_out):
        if self._shard is not None and self._shard.bytes + len(data) > self._options.shard:
            self._finish_shard(self._end)
        problems = {index: (kind, why) for index, kind, why in left_out}
        for index, (file, line) in enumerate(part.places):
            self._touched.add(file)
            if index not in problems:
                self._files[file]["documents"] += 1
                continue
            kind, why = problems[index]
            place = self._inputs[file].path + (f":{line}" if part.has_fields else "")
            if self._options.strict:
                raise DataError(f"{place}: {kind}: {why} (--strict)")
            counts = self._files[file]["left_out"]
            counts[kind] = counts.get(kind, 0) + 1
            examples = self._examples.setdefault(kind, [])
            if len(examples) < EXAMPLES:
                examples.append(f"{place}: {why}")
        if lengths:
            if self._shard is None:
                self._shard = shards.ShardWriter(self._folder, f"tokens-{len(self._shards):05}", self._tokenizer.token_type,
                                                 masks=len(self._fields) > 1)
            self._shard.add(data, lengths, fronts)
        self._end = part.end

    def _finish_shard(self, end):
        description = self._shard.finish()
        self._shard = None
        self._shards.append(description)
        self._note({"shard": description, "end": end, "examples": self._examples,
                    "files": {index: self._files[index] for index in self._touched}})
        self._touched = {end[0]}

    def _commit(self):
        documents = sum(shard["documents"] for shard in self._shards)
        tokens = sum(shard["tokens"] for shard in self._shards)
        counted = sum(shard["counted"] for shard in self._shards) if len(self._fields) > 1 else None
        left_out = self._say_what_is_left_out(documents)
        if not documents:
            raise DataError("there is no document in " + ", ".join(self._options.inputs))
        description = {
            "format": "tandem-dataset", "version": 1, "tokenizer": self._tokenizer.describe(),
            "token_type": self._tokenizer.token_type, "documents": documents, "tokens": tokens,
            **({"counted": counted} if counted is not None else {}), "shards": self._shards,
            "inputs": [{"path": source.path, "bytes": source.bytes, "xxh3": file["xxh3"], "documents": file["documents"],
                        "left_out": dict(sorted(file["left_out"].items()))} for source, file in zip(self._inputs, self._files)],
            "options": self._settings, "made_by": f"tandem {version()}"}
        with open(self._path("dataset.json"), "w", encoding="utf-8") as file:
            json.dump(description, file, indent=1, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.unlink(self._path("journal.jsonl"))
        _sync(self._folder)
        try:
            os.rename(self._folder, self._out)
        except OSError as error:
            raise DataError(f"--out: {self._out}: {error.strerror}; the dataset is in {self._folder}") from error
        _sync(os.path.dirname(self._out))
        self._say(f"prepare: {documents} documents, {tokens} tokens ({self._tokenizer.token_type}) of a vocabulary of "
                  f"{self._tokenizer.vocabulary} in {len(self._shards)} {'shard' if len(self._shards) == 1 else 'shards'}"
                  + (f", {counted} tokens count as targets" if counted is not None else "")
                  + (f", {left_out} documents left out" if left_out else "") + f": {self._out}")
        return description

    def _say_what_is_left_out(self, documents):
        counts = collections.Counter()
        for file in self._files:
            counts.update(file["left_out"])
        left_out = sum(counts.values())
        for kind, number in sorted(counts.items()):
            shown = self._examples[kind]
            self._say(f"prepare: left out {number} ({kind})" + (f", the first {len(shown)}:" if number > len(shown) else ":"))
            for example in shown:
                self._say(f"  {example}")
        if left_out > MOST_LEFT_OUT * (documents + left_out) and not self._options.lenient:
            raise DataError(f"{left_out} of {documents + left_out} documents were left out, more than 5 %: is --text-field "
                            f"{self._options.text_field} the right one? If they are to be left out, use --lenient")
        return left_out


def _sync(folder):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
