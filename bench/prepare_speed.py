#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast `tandem data prepare` is beside encode_batch_fast of Hugging Face's tokenizers on the same text in memory, with as
many threads as prepare has processes: JSON lines, plain and .zst, medians of three runs in turn.

The text is what this machine has below /usr/share and /usr/include, its tokenizer a byte-level BPE of 32,000 ids trained on
some of it. Prints a line of JSON. Usage: ~/.cache/tandem/data/bin/python bench/prepare_speed.py [--processes N] [--megabytes N]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import zstandard
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[1]
RUNS = 3
ALONE = """
import json, sys, time, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
tokenizer.encode_special_tokens = True
texts = [json.loads(line)["text"] for line in open(sys.argv[2])]
tokenizer.encode_batch_fast(texts[:100], add_special_tokens=False)
begin, tokens, at = time.perf_counter(), 0, 0
while at < len(texts):
    encoded = tokenizer.encode_batch_fast(texts[at:at + 1000], add_special_tokens=False)
    tokens += sum(len(each.ids) for each in encoded)
    at += 1000
print(json.dumps({"seconds": time.perf_counter() - begin, "tokens": tokens}))
"""


def texts(megabytes):
    """Texts of real files, together so large, of at most 64 kB each."""
    left = megabytes * 1_000_000
    for root in ("/usr/share/doc", "/usr/share/perl", "/usr/include", "/usr/lib/python3", "/usr/share"):
        for path in sorted(pathlib.Path(root).rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            try:
                text = path.read_text()
            except (UnicodeDecodeError, OSError):
                continue
            for begin in range(0, len(text), 1 << 16):
                yield text[begin:begin + (1 << 16)]
                left -= len(text[begin:begin + (1 << 16)].encode())
                if left <= 0:
                    return


def make_tokenizer(path, sample):
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(sample, trainers.BpeTrainer(vocab_size=32000, special_tokens=["<|endoftext|>"],
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    bpe.save(str(path))


def alone(tokenizer, file, threads):
    done = subprocess.run([sys.executable, "-c", ALONE, tokenizer, file], check=True, capture_output=True, text=True,
                          env={**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"})
    return json.loads(done.stdout)


def prepare(tokenizer, file, out, processes):
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "tandem.program", "data", "prepare", file, "--tokenizer", tokenizer, "--out", out, "--eos",
                    "<|endoftext|>", "--processes", str(processes)], check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--megabytes", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        found = list(texts(arguments.megabytes))
        size = sum(len(text.encode()) for text in found)
        make_tokenizer(folder / "tokenizer.json", found[::max(1, len(found) // 80)])
        content = "".join(json.dumps({"text": text}) + "\n" for text in found).encode()
        (folder / "plain.jsonl").write_bytes(content)
        (folder / "packed.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(content))
        del found, content
        seconds = {"alone": [], "plain.jsonl": [], "packed.jsonl.zst": []}
        for run in range(RUNS):
            encoded = alone(folder / "tokenizer.json", folder / "plain.jsonl", arguments.processes)
            seconds["alone"].append(encoded["seconds"])
            for file in ("plain.jsonl", "packed.jsonl.zst"):
                seconds[file].append(prepare(folder / "tokenizer.json", folder / file, folder / f"{run}-{file}", arguments.processes))
        median = {what: statistics.median(each) for what, each in seconds.items()}
        print(json.dumps({"bench": "prepare", "bytes": size, "tokens": encoded["tokens"], "processes": arguments.processes,
                          "alone_bytes_per_second": size / median["alone"],
                          "plain_of_alone": median["alone"] / median["plain.jsonl"],
                          "zst_of_alone": median["alone"] / median["packed.jsonl.zst"]}))


if __name__ == "__main__":
    main()
