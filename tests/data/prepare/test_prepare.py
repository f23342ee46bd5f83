# SPDX-License-Identifier: Apache-2.0
"""tandem data prepare: real tokenizers, real files, real processes."""
import array
import gzip
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tandem
from tandem.data import processes
from tandem.data.check import check
from tandem.data.errors import DataError
from tandem.data.inputs import Input, InputFile
from tandem.data.inspect import inspect
from tandem.data.prepare import PART_BYTES, Options, prepare
from tandem.data.progress import Progress

SEED = 20261128
WORDS = ["alpha", "beta", "gamma", "delta", "naïve", "日本", "🙂", "<|endoftext|>", "x\r\ny", "  ", "0123"]


def library_of(tokenizer):
    """The library's tokenizer, which treats text alone."""
    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    return library


def sentence(generator, most=60):
    return " ".join(generator.choice(WORDS) for _ in range(generator.randrange(1, most)))


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A byte-level BPE as published: a post-processor that adds tokens, truncation and padding left in the file."""
    folder = tmp_path_factory.mktemp("tokenizer")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    generator = random.Random(SEED)
    bpe.train_from_iterator((sentence(generator) for _ in range(200)), trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>", "<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    bpe.enable_truncation(8)
    bpe.enable_padding(length=16)
    bpe.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}, "bos_token": "<s>"}))
    return folder


def documents_of(folder):
    """Of a dataset, read here from the description of the format."""
    description = json.loads((folder / "dataset.json").read_text())
    documents = []
    for shard in description["shards"]:
        index = (folder / f"{shard['name']}.idx").read_bytes()
        version, code, count, entries = struct.unpack_from("<QBQQ", index, 9)
        assert index[:9] == b"MMIDIDX\0\0" and version == 1 and code in (4, 8) and entries == count + 1
        size = {4: 4, 8: 2}[code]
        lengths = array.array("i", index[34:34 + 4 * count])
        pointers = array.array("q", index[34 + 4 * count:34 + 12 * count])
        assert array.array("q", index[34 + 12 * count:]).tolist() == list(range(count + 1))
        tokens = array.array("H" if size == 2 else "i", (folder / f"{shard['name']}.bin").read_bytes())
        at = 0
        for length, pointer in zip(lengths, pointers):
            assert pointer == at * size
            documents.append(tokens[at:at + length].tolist())
            at += length
        assert at == len(tokens) == shard["tokens"] and count == shard["documents"]
    assert len(documents) == description["documents"]
    return documents, description


def lines(texts):
    return "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)).encode()


def run(tmp_path, tokenizer, said=None, out="out", **options):
    """Prepares tmp_path/in; what it says is appended to `said`."""
    folder = tmp_path / out
    prepare(Options(**{"inputs": [str(tmp_path / "in")], "out": str(folder), "tokenizer": str(tokenizer), **options}),
            say=(said if said is not None else []).append)
    return folder


def write(tmp_path, files):
    for name, content in files.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_tokens_are_those_of_the_library_alone(tmp_path, tokenizer):
    generator = random.Random(SEED)
    texts = [sentence(generator) for _ in range(300)]
    write(tmp_path, {"a.jsonl": lines(texts[:100]), "b.jsonl.gz": gzip.compress(lines(texts[100:200])),
                     "c.jsonl.zst": zstandard.ZstdCompressor().compress(lines(texts[200:250])) +
                     zstandard.ZstdCompressor().compress(lines(texts[250:299])), "d.txt": texts[299].encode()})
    documents, description = documents_of(run(tmp_path, tokenizer))
    library = library_of(tokenizer)
    assert documents == [library.encode(text, add_special_tokens=False).ids + [0] for text in texts]
    assert all(document.count(0) == 1 for document in documents), "text that looks like the end of a document is text"
    assert [file["documents"] for file in description["inputs"]] == [100, 100, 99, 1]
    of = description["tokenizer"]
    assert (of["vocabulary"], of["eos"], of["bos"], of["adds_eos"], of["adds_bos"]) == (library.get_vocab_size(), 0, 1, True, False)
    assert of["sha256"] == hashlib.sha256((tokenizer / "tokenizer.json").read_bytes()).hexdigest()


def test_pieces_with_byte_fallback_equal_the_librarys(tmp_path):
    """A BPE in the style of SentencePiece, as Llama 2 has it: spaces are letters, and a document begins with one."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bpe.train_from_iterator(["the weights of a model, and the text of a model"] * 20, trainers.BpeTrainer(vocab_size=58, show_progress=False))
    learnt = json.loads(bpe.to_str())
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *sorted(learnt["model"]["vocab"])]
    learnt["model"].update(vocab={piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    library = Tokenizer.from_str(json.dumps(learnt))
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    (tmp_path / "pieces").mkdir()
    library.save(str(tmp_path / "pieces" / "tokenizer.json"))
    (tmp_path / "pieces" / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "bos_token": "<s>"}))
    texts = ["the text", "of  a model\n", "☃ is no piece, nor is\tthis", "</s> is text here"]
    write(tmp_path, {"a.jsonl": lines(texts)})
    documents, description = documents_of(run(tmp_path, tmp_path / "pieces"))
    library.encode_special_tokens = True
    assert documents == [library.encode(text, add_special_tokens=False).ids + [2] for text in texts]
    assert [library.decode(document) for document in documents] == texts
    assert description["tokenizer"]["vocabulary"] == library.get_vocab_size() and description["tokenizer"]["eos"] == 2


def test_bytes_are_tokens_and_256_ends_a_document(tmp_path):
    write(tmp_path, {"a.jsonl": lines(["aé", "b"])})
    documents, description = documents_of(run(tmp_path, "bytes"))
    assert documents == [[97, 0xC3, 0xA9, 256], [98, 256]]
    assert description["tokenizer"]["vocabulary"] == 257 and description["token_type"] == "u16"


def test_options_add_tokens_and_parse_special_ones(tmp_path, tokenizer):
    write(tmp_path, {"a.jsonl": lines(["a<|endoftext|>b"])})
    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    a, b = library.token_to_id("a"), library.token_to_id("b")
    assert documents_of(run(tmp_path, tokenizer, bos="auto", eos="none", parse_special=True))[0] == [[1, a, 0, b]]
    assert documents_of(run(tmp_path, tokenizer, out="two", bos="none", eos="<s>", parse_special=True))[0] == [[a, 0, b, 1]]
    file = tokenizer.parent / "alone" / "tokenizer.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes((tokenizer / "tokenizer.json").read_bytes())
    with pytest.raises(DataError, match=r"give --eos with one of its special tokens \(<\|endoftext\|>, <s>\), or none"):
        run(tmp_path, file, out="three")
    assert documents_of(run(tmp_path, file, out="three", eos="0", parse_special=True))[0] == [[a, 0, b, 0]]


def test_a_large_vocabulary_takes_four_bytes(tmp_path):
    vocabulary = {chr(0x100 + i) if i else "a": i for i in range(70_000) if not 0xD800 <= 0x100 + i <= 0xDFFF}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    words.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, {"a.jsonl": lines([chr(0x100 + 69_999), "a"])})
    documents, description = documents_of(run(tmp_path, tmp_path / "tokenizer.json", eos="none"))
    assert documents == [[69_999], [0]] and description["token_type"] == "i32" and description["tokenizer"]["vocabulary"] == 70_000


def many(tmp_path):
    """About seven parts in three files of three kinds."""
    generator = random.Random(SEED)
    texts = [sentence(generator, 600) for _ in range(4_000)]
    write(tmp_path, {"a.jsonl": lines(texts[:1700]), "b.jsonl.gz": gzip.compress(lines(texts[1700:3400]), 1),
                     "c.jsonl": lines(texts[3400:]), "z.txt": b"one document"})
    return texts


def test_any_number_of_processes_makes_the_same_bytes(tmp_path, tokenizer):
    texts = many(tmp_path)
    assert sum(len(text.encode()) for text in texts) > 5 * PART_BYTES
    one = digests(run(tmp_path, tokenizer, out="one", processes=1, shard=1 << 20))
    three = digests(run(tmp_path, tokenizer, out="three", processes=3, shard=1 << 20))
    assert one == three and len(one) > 5


def start(tmp_path, *words):
    return subprocess.Popen([sys.executable, "-m", "tandem.program", "data", "prepare", str(tmp_path / "in"), "--out",
                             str(tmp_path / "out"), "--tokenizer", "bytes", "--shard", "1MiB", "--processes", "2", *words],
                            env={**os.environ, "PYTHONPATH": str(pathlib.Path(tandem.__file__).parents[1])}, stderr=subprocess.PIPE,
                            text=True)


def stopped(tmp_path, blow, num_shards, *words):
    """What a run said that got that signal when it had made so many shards. One that ended before is tried again."""
    for _ in range(10):
        process = start(tmp_path, *words)
        while process.poll() is None and len(list(tmp_path.glob("out.tmp.*/*.idx"))) < num_shards:
            time.sleep(0.001)
        process.send_signal(blow)
        said = process.communicate()[1]
        if not (tmp_path / "out").exists():
            return process.returncode, said
        shutil.rmtree(tmp_path / "out")
    raise AssertionError("every run ended before it was stopped")


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_resumes_to_the_same_bytes(tmp_path, blow):
    many(tmp_path)
    whole = digests(run(tmp_path, "bytes", out="whole", shard=1 << 20))
    code, said = stopped(tmp_path, blow, 2)
    if blow != signal.SIGKILL:
        assert code == 130 and "finished shards are kept in" in said, said
        (left,) = tmp_path.glob("out.tmp.*")
        kept = sorted(path.name for path in left.iterdir())
        assert len(kept) % 2 == 1 and kept[0] == "journal.jsonl", "a shard is whole or not there"
    said = []
    with pytest.raises(DataError, match="other options, inputs or another version"):
        run(tmp_path, "bytes", shard=2 << 20)
    assert digests(run(tmp_path, "bytes", said, shard=1 << 20)) == whole
    assert any("goes on behind" in line for line in said), said
    assert not list(tmp_path.glob("out.tmp.*"))


@pytest.mark.parametrize("words", [(), ("--prompt-field", "q")], ids=["rows of Parquet", "prompts"])
def test_a_stopped_run_goes_on_behind_finished_shards(tmp_path, words):
    texts = [chr(97 + i % 26) * 2000 for i in range(2000)]
    if words:
        write(tmp_path, {"a.jsonl": "".join(json.dumps({"q": "q" * (i % 50), "text": text}) + "\n" for i, text in enumerate(texts)).encode()})
    else:
        write(tmp_path, {"b.txt": b"text"})
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "in" / "a.parquet")
    options = {"shard": 1 << 20, **({"prompt_field": "q"} if words else {})}
    whole = digests(run(tmp_path, "bytes", out="whole", **options))
    stopped(tmp_path, signal.SIGKILL, 2, *words)
    said = []
    assert digests(run(tmp_path, "bytes", said, **options)) == whole
    assert any("goes on behind" in line for line in said)


def test_a_finished_shard_that_changed_is_made_again(tmp_path):
    many(tmp_path)
    whole = digests(run(tmp_path, "bytes", out="whole", shard=1 << 20))
    stopped(tmp_path, signal.SIGKILL, 3)
    (bin_file,) = tmp_path.glob("out.tmp.*/tokens-00001.bin")
    content = bytearray(bin_file.read_bytes())
    content[1000] ^= 1
    bin_file.write_bytes(content)
    said = []
    assert digests(run(tmp_path, "bytes", said, shard=1 << 20)) == whole
    assert "prepare: goes on behind 1 finished shards" in said


def test_ctrl_c_before_the_first_shard_leaves_nothing(tmp_path):
    many(tmp_path)
    process = start(tmp_path)
    while process.poll() is None and not list(tmp_path.glob("out.tmp.*")):
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    if "finished shards are kept" not in said:
        assert not list(tmp_path.glob("out*")), said


def test_what_cannot_be_used_is_counted_and_named(tmp_path, tokenizer):
    broken = (b'\xef\xbb\xbf{"text": "first"}\r\n{"text": ""}\n{"text": 3}\n{"x": "no"}\nnot json\n\n{"text": "a\\ud800b"}\n'
              b'{"text": "in\\r\\nside"}\n{"text": "caf\xe9"}\n' + b"[" * 100_000 + b'\n{"text": "last"}')
    write(tmp_path, {"a.jsonl": broken})
    said = []
    with pytest.raises(DataError, match=r"7 of 10 documents were left out, more than 5 %: is --text-field text the right one\?"):
        run(tmp_path, tokenizer, said)
    folder = run(tmp_path, tokenizer, said, lenient=True)
    documents, description = documents_of(folder)
    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    assert [library.decode(document) for document in documents] == ["first", "in\r\nside", "last"]
    assert description["inputs"][0]["left_out"] == {"broken JSON": 2, "empty": 1, "no text": 1, "not UTF-8": 2, "without the field": 1}
    name = tmp_path / "in" / "a.jsonl"
    assert f"  {name}:2: it has no text" in said and f"  {name}:9: byte 13 of it is no UTF-8" in said
    with pytest.raises(DataError, match="a.jsonl:2: empty: it has no text"):
        run(tmp_path, tokenizer, out="strict", strict=True)
    assert not list(tmp_path.glob("strict*"))


def test_ten_of_each_kind_are_named(tmp_path, tokenizer):
    write(tmp_path, {"a.jsonl": lines(["text"] * 500) + b"broken\n" * 20})
    said = []
    run(tmp_path, tokenizer, said)
    assert "prepare: left out 20 (broken JSON), the first 10:" in said
    assert sum(line.startswith("  ") for line in said) == 10


class Endless:
    """A line of 3 GB, made while it is read."""

    def __init__(self):
        self.left = 3000

    def read(self, _size):
        self.left -= 1
        return b"x" * 1_000_000 if self.left >= 0 else b""


def test_a_line_of_3_gb_takes_no_memory(tmp_path):
    import resource
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    file = InputFile(Input("line", 0, 0, True), 62 << 20)
    stream = Endless()
    file._blocks = lambda _: iter(lambda: stream.read(1), b"")
    (raw,) = file._json_lines(b"")
    assert raw.text is None and raw.end == 3_000_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kB"


def test_longer_documents_than_allowed_are_left_out(tmp_path):
    short, long = b'{"text": "x"}', b'{"text": "xy"}'
    write(tmp_path, {"a.jsonl": short + b"\r\n" + long + b"\n" + short + b"\n", "b.txt": b"y" * 13, "c.txt": b"y" * 14})
    documents, description = documents_of(run(tmp_path, "bytes", max_document=13, lenient=True))
    assert [bytes(document[:-1]) for document in documents] == [b"x", b"x", b"y" * 13]
    assert [file["left_out"] for file in description["inputs"]] == [{"too long": 1}, {}, {"too long": 1}]


@pytest.mark.parametrize("name, content, message", [
    ("a.jsonl.gz", gzip.compress(lines(["text"] * 1000))[:-20], "its compressed data cannot be read"),
    ("a.jsonl.zst", zstandard.ZstdCompressor().compress(lines([str(i) for i in range(1000)]))[:-20], "may be half of a download"),
    ("a.parquet", b"PAR1....", "it cannot be read as Parquet"),
    ("a.parquet", lines(["text"]), "do not agree on whether it is Parquet; fetch it again, or rename it"),
    ("a.jsonl", b"PAR1....", "do not agree on whether it is Parquet"),
    ("a.parquet.gz", gzip.compress(b"PAR1...."), "it is compressed Parquet"),
    ("a.idx", b"MMIDIDX\0\0", "it is an index of tokens, which is not read; give JSON lines, Parquet or text"),
    ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "it is a Git LFS pointer"),
    ("a.jsonl", b"", "there is no document"),
])
def test_files_that_are_no_text_are_named(tmp_path, tokenizer, name, content, message):
    write(tmp_path, {name: content})
    with pytest.raises(DataError, match=message):
        run(tmp_path, tokenizer)
    assert not list(tmp_path.glob("out*"))


def test_parquet_rows_are_documents_like_json_lines(tmp_path, tokenizer):
    """As the hub has them: several groups of rows, compressed, with other columns beside."""
    generator = random.Random(SEED)
    texts = [sentence(generator, 600) for _ in range(2000)] + [None, ""]
    prompts = [sentence(generator) for _ in texts]
    table = pyarrow.table({"id": range(len(texts)), "text": pyarrow.array(texts).dictionary_encode(), "q": prompts,
                           "raw": pyarrow.array([b"\xff"] * len(texts))})
    write(tmp_path, {"b.txt": b"one document"})
    pyarrow.parquet.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=300, compression="zstd")
    library = library_of(tokenizer)

    def ids(text):
        return library.encode(text, add_special_tokens=False).ids

    folder = run(tmp_path, tokenizer, shard=1 << 20)
    documents, description = documents_of(folder)
    assert documents == [ids(text) + [0] for text in (*texts[:2000], "one document")] and len(description["shards"]) > 1
    assert description["inputs"][0]["left_out"] == {"empty": 1, "no text": 1}
    assert digests(run(tmp_path, tokenizer, out="one", processes=1, shard=1 << 20)) == digests(folder)
    (tmp_path / "in" / "b.txt").unlink()
    with_prompts = documents_of(run(tmp_path, tokenizer, out="prompts", prompt_field="q"))[0]
    assert with_prompts == [ids(q) + ids(text) + [0] for q, text in zip(prompts, texts) if text]
    with pytest.raises(DataError, match="a.parquet: it has no column body; name one of id, text, q, raw with --text-field"):
        run(tmp_path, tokenizer, out="no", text_field="body")
    with pytest.raises(DataError, match="it has no column p; name one of id, text, q, raw with --prompt-field"):
        run(tmp_path, tokenizer, out="no", prompt_field="p")
    twice = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
    pyarrow.parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="it has several columns text"):
        prepare(Options(inputs=[str(tmp_path / "twice.parquet")], out=str(tmp_path / "no"), tokenizer="bytes"))
    with pytest.raises(DataError, match="there is no document"):
        run(tmp_path, tokenizer, out="no", text_field="raw", lenient=True)
    with pytest.raises(DataError, match="it is Parquet, and not one document of text; omit --format"):
        run(tmp_path, tokenizer, out="no", format="text")


def test_hidden_files_are_skipped_and_said_once(tmp_path):
    write(tmp_path, {"a.txt": b"seen", ".b.txt": b"not", ".git/c.txt": b"not"})
    said = []
    assert len(documents_of(run(tmp_path, "bytes", said))[0]) == 1
    assert said[0] == "prepare: 2 hidden files and folders are skipped"


def test_nothing_is_overwritten(tmp_path):
    write(tmp_path, {"a.txt": b"text"})
    folder = run(tmp_path, "bytes")
    with pytest.raises(DataError, match="it is there already"):
        run(tmp_path, "bytes")
    assert (folder / "dataset.json").exists()


def test_progress_has_rate_and_time_left():
    class Terminal(list):
        def write(self, text):
            self.append(text)

        def isatty(self):
            return True

        def flush(self):
            pass
    now = [0.0]
    screen = Terminal()
    progress = Progress(2_000_000_000, stream=screen, clock=lambda: now[0])
    now[0] = 10
    progress.show(500_000_000, 1_500_000)
    assert "25%  500.0 MB of 2.0 GB  50.0 MB/s  1.5M tokens  ETA 0:00:30" in screen[0]


def test_a_system_error_in_a_process_is_reported(monkeypatch):
    def fail(*_):
        raise OSError("no room")
    monkeypatch.setattr(processes, "tokenize_part", fail)
    here, there = multiprocessing.Pipe()
    here.send(([b"text"], False))
    with pytest.raises(OSError, match="no room"):
        processes._work(there, {"path": "bytes"}, "text")


def shown_of(folder):
    lines = []
    inspect(str(folder), say=lines.append)
    return lines


def test_inspect_decodes_with_the_tokenizer_that_made_it(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("alpha beta naïve")
    prepare(Options([str(tmp_path / "a.txt")], str(tmp_path / "out"), str(tokenizer)), say=lambda line: None)
    assert any(line.endswith("): alpha beta naïve<|endoftext|>") for line in shown_of(tmp_path / "out"))
    description = json.loads((tmp_path / "out" / "dataset.json").read_text())
    description["tokenizer"]["sha256"] = "0" * 64
    (tmp_path / "out" / "dataset.json").write_text(json.dumps(description))
    lines = shown_of(tmp_path / "out")
    assert "no longer at" in lines[0] and not any("alpha" in line for line in lines)


def test_tokens_of_prompts_do_not_count(tmp_path, tokenizer):
    generator = random.Random(SEED)
    pairs = [(sentence(generator) if i % 7 else "", sentence(generator)) for i in range(500)]
    content = "".join(json.dumps({"q": q, "a": a}) + "\n" for q, a in pairs)
    write(tmp_path, {"a.jsonl": (content + '{"a": "x"}\n{"q": 3, "a": "x"}\n').encode()})
    said = []
    options = {"prompt_field": "q", "text_field": "a", "bos": "<s>"}
    folder = run(tmp_path, tokenizer, said, **options)
    documents, description = documents_of(folder)
    library = library_of(tokenizer)
    ids = {text: library.encode(text, add_special_tokens=False).ids for pair in pairs for text in pair}
    assert documents == [[1, *ids[q], *ids[a], 0] for q, a in pairs]
    bits = []
    for shard in description["shards"]:
        mask = (folder / f"{shard['name']}.mask").read_bytes()
        assert len(mask) == (shard["tokens"] + 7) // 8
        bits += [mask[at // 8] >> at % 8 & 1 for at in range(shard["tokens"])]
    wanted = [bit for q, a in pairs for bit in [0] * (1 + len(ids[q])) + [1] * (len(ids[a]) + 1)]
    assert bits == wanted and description["counted"] == sum(wanted)
    assert description["inputs"][0]["left_out"] == {"no text": 1, "without the field": 1}
    assert check(str(folder))
    assert digests(run(tmp_path, tokenizer, out="again", processes=1, **options)) == digests(folder)
    (folder / f"{description['shards'][0]['name']}.mask").write_bytes(b"\1" * ((description["shards"][0]["tokens"] + 7) // 8))
    assert not check(str(folder))


@pytest.mark.parametrize("name, options, message", [
    ("a.txt", {"prompt_field": "q"}, "a.txt is one document of text, without fields"),
    ("a.jsonl", {"prompt_field": "text"}, "--prompt-field: text is the --text-field, too; name two fields")])
def test_prompts_need_two_fields(tmp_path, name, options, message):
    write(tmp_path, {name: b"{}"})
    with pytest.raises(DataError, match=message):
        run(tmp_path, "bytes", **options)


def test_a_package_that_follow_needs_is_named():
    done = subprocess.run([sys.executable, "-m", "tandem.program", "follow", "job", "--to", "mlflow"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(pathlib.Path(tandem.__file__).parents[1])}, check=False, timeout=120)
    assert done.returncode == 1 and done.stderr == ("tandem: the Python package grpc is missing; run scripts/setup.sh --follow, or pip install "
                                                    '"./python[mlflow]", in a clone of Tandem\n')
