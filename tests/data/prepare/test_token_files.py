# SPDX-License-Identifier: Apache-2.0
"""tandem data inspect and check, on files that are written here from the descriptions of their formats."""
import array
import json
import os
import random
import struct
import subprocess
import sys

import pytest

from tandem.data import token_files
from tandem.data.check import check
from tandem.data.errors import DataError
from tandem.data.inspect import inspect, shown
from tandem.data.prepare import Options, prepare
from tandem.data.token_files import open_tokens

SEED = 20261129
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tandem.program import main; sys.exit(main())"


def index(lengths, item, code, pointers=None, documents=None):
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + item * length)
    documents = list(range(len(lengths) + 1)) if documents is None else documents
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents)) + array.array("i", lengths).tobytes()
            + array.array("q", ends[:-1] if pointers is None else pointers).tobytes() + array.array("q", documents).tobytes())


def pair(folder, name="x", tokens=(1, 2, 3, 4, 5), lengths=(3, 2), **changed):
    (folder / f"{name}.bin").write_bytes(array.array("i", tokens).tobytes())
    (folder / f"{name}.idx").write_bytes(index(lengths, 4, 4, **changed))
    return str(folder / name)


def numpy_file(path, tokens, descr="<u2", code="H", shape=None):
    header = repr({"descr": descr, "fortran_order": False, "shape": (len(tokens),) if shape is None else shape}).encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array.array(code, tokens).tobytes())
    return str(path)


def llmc_file(path, tokens, magic=20240520, version=1, code="H", count=None):
    header = struct.pack("<iii", magic, version, len(tokens) if count is None else count).ljust(1024, b"\0")
    path.write_bytes(header + array.array(code, tokens).tobytes())
    return str(path)


@pytest.fixture
def prepared(tmp_path):
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("hello", "", "a\x1b[2J", "world " * 50)))
    prepare(Options([str(tmp_path / "text.jsonl")], str(tmp_path / "out"), "bytes", lenient=True), say=lambda line: None)
    return tmp_path / "out"


def said_by(function, *arguments, **options):
    lines = []
    result = function(*arguments, say=lines.append, **options)
    return result, lines


def refused(*arguments, **options):
    with pytest.raises(DataError) as error:
        open_tokens(*map(str, arguments), **options)
    return str(error.value)


def tokens_of(tokens):
    return [token for file in tokens.files for _, block in file.blocks() for token in block]


def test_every_format_is_read(tmp_path, monkeypatch):
    generator = random.Random(SEED)
    ids = [generator.randrange(50000) for _ in range(1000)]
    assert tokens_of(open_tokens(pair(tmp_path, tokens=ids, lengths=(400, 0, 600)))) == ids
    for path in ("x.bin", "x.idx"):
        assert tokens_of(open_tokens(str(tmp_path / path))) == ids
    forms = {numpy_file(tmp_path / "a.npy", ids): "npy", numpy_file(tmp_path / "b.npy", ids, "<i8", "q", (10, 100)): "npy",
             llmc_file(tmp_path / "c.bin", ids): "llmc", llmc_file(tmp_path / "d.bin", ids, 20240801, 7, "I"): "llmc"}
    monkeypatch.setattr(token_files, "BLOCK_BYTES", 96)
    for path, form in forms.items():
        tokens = open_tokens(path)
        assert (tokens.form, tokens_of(tokens)) == (form, ids)
        assert [token for _, block in tokens.files[0].blocks(17, 100) for token in block] == ids[17:117]
    (tmp_path / "flat").write_bytes(array.array("I", ids).tobytes())
    assert tokens_of(open_tokens(str(tmp_path / "flat"), "flat", "u32")) == ids


def test_folders_of_one_kind_are_one_source(tmp_path):
    pair(tmp_path, "b", tokens=(7, 8), lengths=(2,))
    pair(tmp_path, "a")
    (tmp_path / ".hidden").write_text("x")
    assert tokens_of(open_tokens(str(tmp_path))) == [1, 2, 3, 4, 5, 7, 8]
    numpy_file(tmp_path / "c.npy", [1])
    assert "megatron and npy" in refused(tmp_path)
    (tmp_path / "readme.txt").write_text("x")
    assert "readme.txt: it is no file of tokens" in refused(tmp_path)


def test_what_is_no_file_of_tokens_is_refused(tmp_path):
    assert "no such file" in refused(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    assert "--format flat" in refused(tmp_path / "text")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe")
    assert "no whole number of tokens" in refused(tmp_path / "text", form="flat", token_type="u16")
    assert "needs u16 or u32" in refused(tmp_path / "text", form="flat")
    assert "only with --format flat" in refused(tmp_path / "text", token_type="u16")
    assert "says 3 tokens of u16" in refused(llmc_file(tmp_path / "a", [1, 2], count=3))
    assert "says -1 tokens" in refused(llmc_file(tmp_path / "a", [1, 2], count=-1))
    assert "version 2" in refused(llmc_file(tmp_path / "a", [1, 2], version=2))
    assert "questions with answers" in refused(llmc_file(tmp_path / "a", [1, 2], magic=20240522))
    assert "numbers of type <f4" in refused(numpy_file(tmp_path / "a", [1, 2], "<f4"))
    assert "no array of rows" in refused(numpy_file(tmp_path / "a", [1, 2], shape="(2,)"))
    assert "says 4611686018427387904 tokens" in refused(numpy_file(tmp_path / "a", [1, 2], shape=(1 << 31, 1 << 31)))


def test_rules_of_an_index_are_checked(tmp_path):
    assert said_by(check, pair(tmp_path))[0] is True
    for changed, text in (({"pointers": (0, 8)}, "sequence 1 begins at byte 8, and the one before it ends at 12"),
                          ({"lengths": (3, 3)}, "its sequences have 24 bytes"), ({"lengths": (6, -1)}, "sequence 1 has -1 tokens"),
                          ({"documents": (0, 2, 1, 2)}, "entry 2 of its documents is 1"), ({"documents": (1, 2)}, "entry 0"),
                          ({"documents": (0, 1)}, "its documents end with sequence 1, and it has 2")):
        whole, lines = said_by(check, pair(tmp_path, **changed))
        assert whole is False and text in lines[0], lines
    path = pair(tmp_path)
    content = (tmp_path / "x.idx").read_bytes()
    for changed, text in ((content[:-1], "it has 81 bytes"), (content[:20], "no index"), (b"x" * 82, "no index"),
                          (content[:9] + b"\2" + content[10:], "version 2"), (content[:17] + b"\6" + content[18:], "of type 6"),
                          (content[:18] + struct.pack("<Q", 1 << 62) + content[26:], f"{1 << 62} sequences")):
        (tmp_path / "x.idx").write_bytes(changed)
        assert text in refused(path), text


def test_tokens_outside_the_vocabulary_are_named(tmp_path):
    whole, lines = said_by(check, pair(tmp_path, tokens=(1, -2, 3, 4, 5)), vocabulary=5)
    assert not whole and [line.partition(": ")[2] for line in lines[:2]] == [
        "token id -2 at byte 4 is less than 0", "token id 5 at byte 16 is not below the vocabulary, 5"]
    whole, lines = said_by(check, pair(tmp_path, tokens=[9] * 50, lengths=(50,)), vocabulary=9)
    assert not whole and len(lines) == 12 and "and 40 more" in lines[10] and "50 problems" in lines[11]


def test_a_prepared_folder_is_compared_with_its_description(prepared):
    whole, lines = said_by(check, str(prepared))
    assert whole and "whole: 1 file of prepared, 3 documents, " in lines[-1] and "below 257" in lines[-1]
    with pytest.raises(DataError, match="257 ids, more than 256"):
        said_by(check, str(prepared), vocabulary=256)
    shard = prepared / "tokens-00000.bin"
    content = shard.read_bytes()
    shard.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert "not what dataset.json says (xxh3 " in said_by(check, str(prepared))[1][0]
    shard.write_bytes(content[:-2])
    whole, lines = said_by(check, str(prepared))
    assert not whole and any(f"tokens: {len(content) // 2 - 1}, and dataset.json says {len(content) // 2}" in line for line in lines)
    shard.write_bytes(content)
    description = json.loads((prepared / "dataset.json").read_text())
    for key, value, text in (("version", 2, "version 2"), ("format", "x", "not \"tandem-dataset\""), ("tokens", 5, "sum over the shards"),
                             ("shards", [{**description["shards"][0], "name": "../x"}], "shards[0].name"), ("shards", [], "at least one"),
                             ("token_type", "u8", "u16 or i32"), ("tokenizer", {"kind": "bytes", "vocabulary": True}, "vocabulary")):
        (prepared / "dataset.json").write_text(json.dumps({**description, key: value}))
        assert text in refused(prepared)
    (prepared / "dataset.json").write_text("[" * 100000)
    assert "dataset.json" in refused(prepared)


def test_inspect_shows_counts_lengths_and_text(prepared):
    _, lines = said_by(inspect, str(prepared), sequence_length=100)
    text = "\n".join(lines)
    assert "1 left out (empty)" in text and "documents     3" in text and "3 of 100 tokens; 10 tokens at the end" in text
    assert "lengths       6 to 301 tokens" in text
    assert "document 0 (6 tokens): hello" in text and "document 1 (6 tokens): a\\x1b[2J" in text
    assert "document 2 (301 tokens): world world" in text and text.endswith(" ...")
    assert sum(int(line.split()[-1]) for line in lines if "##" in line) == 3


def test_frequencies_of_much_text_are_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr("tandem.data.inspect.MOST_COUNTED", 2560)
    tokens = [7] * 9000 + [8] * 1000
    (tmp_path / "flat").write_bytes(array.array("H", tokens).tobytes())
    _, lines = said_by(inspect, str(tmp_path / "flat"), form="flat", token_type="u16", documents=0)
    assert any(line.split()[:1] == ["7"] and 85 < float(line.split()[1].rstrip("%")) < 95 for line in lines), lines


def test_broken_files_give_errors_by_name(tmp_path, prepared):
    generator = random.Random(SEED)
    numpy_file(tmp_path / "a.npy", [1, 2, 3])
    llmc_file(tmp_path / "c.bin", [1, 2, 3])
    pair(tmp_path)
    places = [tmp_path / "a.npy", tmp_path / "c.bin", tmp_path / "x.idx", prepared / "dataset.json", prepared / "tokens-00000.idx"]
    whole = {path: path.read_bytes() for path in places}
    for number in range(2000):
        path = generator.choice(places)
        content = bytearray(whole[path])
        for _ in range(generator.randrange(1, 4)):
            content[generator.randrange(len(content))] = generator.randrange(256)
        path.write_bytes(content[:generator.choice((len(content), generator.randrange(len(content) + 1)))])
        source = prepared if path.parent == prepared else path
        for function in (check, inspect):
            try:
                said_by(function, str(source))
            except DataError as error:
                assert str(error), (SEED, number)
        path.write_bytes(whole[path])


def test_commands_have_exit_codes_even_on_closed_pipes(pytestconfig, prepared):
    words = [sys.executable, "-c", PROGRAM, str(pytestconfig.getoption("--root")) + "/python", "data"]

    def run(*more):
        return subprocess.run([*words, *map(str, more)], capture_output=True, text=True, timeout=120)
    assert run("check", prepared).returncode == 0
    assert "tokens" in run("inspect", prepared).stdout
    (prepared / "tokens-00000.bin").write_bytes(b"\xff" * 626)
    broken = run("check", prepared)
    assert broken.returncode == 1 and "not below the vocabulary, 257" in broken.stdout
    absent = run("inspect", prepared / "absent")
    assert absent.returncode == 1 and absent.stderr.startswith("tandem: ") and absent.stderr.count("\n") == 1
    assert run("inspect", prepared, "--sequence-length", "0").returncode == 2
    closed = subprocess.run(["bash", "-c", '"$@" | true; exit ${PIPESTATUS[0]}', "x", *words, "inspect", str(prepared)],
                            capture_output=True, text=True, timeout=120)
    assert "Traceback" not in closed.stderr


def test_nothing_shown_moves_a_terminal():
    assert shown("a\x1b[2J\u202e\x9b\n日本") == "a\\x1b[2J\\u202e\\x9b\\n日本"


def test_masks_are_compared_with_what_dataset_json_counts(prepared):
    said = json.loads((prepared / "dataset.json").read_text())
    tokens = said["tokens"]
    shard = prepared / said["shards"][0]["name"]
    mask = shard.with_name(shard.name + ".mask")
    mask.write_bytes(b"\x05" + b"\0" * ((tokens + 7) // 8 - 1))
    for counted, expected in ((2, None), (3, "the masks have 2 tokens that count, and dataset.json says 3"),
                              (None, "it is there, though dataset.json does not say how many tokens count")):
        (prepared / "dataset.json").write_text(json.dumps({**said, "counted": counted}))
        lines = []
        assert check(str(prepared), say=lines.append) == (expected is None), lines
        assert expected is None or any(expected in line for line in lines), lines
    (prepared / "dataset.json").write_text(json.dumps({**said, "counted": 2}))
    mask.write_bytes(b"")
    lines = []
    assert not check(str(prepared), say=lines.append) and "it has 0 bytes, and" in lines[0]
