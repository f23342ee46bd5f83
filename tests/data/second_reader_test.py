#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The order of windows, their tokens and their documents against a second implementation, written here from the
description of the formats and of the order (docs/formats.md), on 1 to 4 ranks.

Usage: second_reader_test.py PROGRAM   (tandem_batches)
"""
import array
import decimal
import fractions
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

MASK = (1 << 64) - 1
SEED = 20261128
NAMES = [0x11cc005ffebd75cf, 0xe9bb79c8b04ed55f, 0xe21638f57bae171f, 0x3e9839df8c76ac00, 0xd90029f4bd9a7649]  # XXH3-64 of "text-0", "text-1", ... by the library of its author


def mix(value):
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def mix_keys(one, two):
    return mix(mix(one) ^ two)


def permuted(index, size, key):
    """A Feistel network of six rounds over the smallest even number of bits that holds size - 1; walks its cycle."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for number in range(6):
            left, right = right, left ^ (mix_keys((key + number) & MASK, right) & mask)
        index = left << half | right
        if index < size:
            return index


def write(folder, shards, u16, masked=False):
    """A prepared folder, its tokens, the positions at which documents begin, and which tokens count as targets; None: all.
    With masks, the first tokens of each document do not."""
    code, kind, size = (8, "H", 2) if u16 else (4, "i", 4)
    tokens, starts, listed, counted = [], [], [], []
    for number, documents in enumerate(shards):
        own = [token for document in documents for token in document]
        pointers, at = [], 0
        for document in documents:
            starts.append(len(tokens) + at // size)
            pointers.append(at)
            at += size * len(document)
        tokens += own
        if masked:
            bits = [place >= front for document in documents for front in [random.randrange(len(document) + 1)] for place in range(len(document))]
            data = bytearray((len(bits) + 7) // 8)
            for at, bit in enumerate(bits):
                data[at // 8] |= bit << at % 8
            (folder / f"s{number}.mask").write_bytes(data)
            counted += bits
        (folder / f"s{number}.bin").write_bytes(array.array(kind, own).tobytes())
        (folder / f"s{number}.idx").write_bytes(
            b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(documents), len(documents) + 1)
            + array.array("i", map(len, documents)).tobytes() + array.array("q", pointers).tobytes()
            + array.array("q", range(len(documents) + 1)).tobytes())
        listed.append({"name": f"s{number}", "documents": len(documents), "tokens": len(own)})
    (folder / "dataset.json").write_text(json.dumps({
        "format": "tandem-dataset", "version": 1, "tokenizer": {"kind": "bytes", "vocabulary": 257, "eos": 256},
        "token_type": "u16" if u16 else "i32", "documents": len(starts), "tokens": len(tokens), "shards": listed,
        **({"counted": sum(counted)} if masked else {})}))
    return tokens, starts, counted if masked else None


def split(tokens, starts, counted, fraction):
    """Tokens, starts and what counts of what is trained on, and of what is held out."""
    held = int(len(tokens) * fraction + 0.5)
    begin = min((start for start in starts if start >= len(tokens) - held), default=len(tokens)) if held else len(tokens)
    return ((tokens[:begin], [start for start in starts if start < begin], counted and counted[:begin]),
            (tokens[begin:], [start - begin for start in starts if start >= begin], counted and counted[begin:]))


def rows(text, train, seed, length, packed, samples):
    tokens, starts, counted = text
    starts = set(starts)
    windows = len(tokens) // (length + 1)
    for sample in samples:
        window = permuted(sample % windows, windows, mix_keys(seed, sample // windows)) if train else sample % windows
        begin = window * (length + 1)
        row = tokens[begin:begin + length + 1]
        if counted is not None:
            counts = train or sample < windows  # a validation counts each window once
            row += [token if counts and counted[begin + 1 + place] else -1 for place, token in enumerate(row[1:])]
        if packed:
            first = 0
            for place in range(length):
                first = place if begin + place in starts else first
                row.append(first)
        yield from row


def scaled(weights):
    """Millionths of their sum, as the rule has it, in whole numbers of 1e-9."""
    units = [int(decimal.Decimal(weight).scaleb(9)) for weight in weights]
    return [max(1, (2 * unit * 10**6 + sum(units)) // (2 * sum(units))) for unit in units]


def blended(weights):
    """Which source each sample comes from, and how many came from it before."""
    total, counts, sample = sum(weights), [0] * len(weights), 0
    while True:
        sample += 1
        below = [i for i, weight in enumerate(weights) if counts[i] * total < weight * sample]
        source = min(below, key=lambda i: (fractions.Fraction(counts[i] + 1, weights[i]), i))
        yield source, counts[source]
        counts[source] += 1


def check_blends():
    """Mixtures of two to five texts. Returns the pairs that were compared; None where one differs."""
    pairs = 0
    for case in range(12):
        with tempfile.TemporaryDirectory() as name:
            folder, sources, texts = pathlib.Path(name), [], []
            length, seed = random.choice((7, 15)), random.randrange(1 << 63)
            for number in range(random.randrange(2, 6)):
                at = folder / f"text-{number}"
                at.mkdir()
                documents = [[random.randrange(257) for _ in range(random.choice((5, 40, 300)))] for _ in range(random.randrange(2, 40))]
                documents.append([random.randrange(257) for _ in range(20)])
                tokens, _, _ = write(at, [documents], u16=True)
                weight = str(random.choice((1, 3, 0.25, 0.017, 12.5)))
                sources.append(f"{at.name}={weight}={at}")
                texts.append((at.name, weight, tokens))
            steps, ranks, rounds, sequences = random.randrange(40, 120), case % 4 + 1, random.randrange(1, 4), random.randrange(1, 4)
            first = random.choice((1, 1, 7, 30))
            done = subprocess.run([sys.argv[1], ",".join(sources), "0", "train", str(seed), str(length), "0", str(steps), str(ranks),
                                   str(rounds), str(sequences), str(first)], stdout=subprocess.PIPE, check=True)
            keys = [mix_keys(seed, NAMES[int(name[-1])]) for name, _, _ in texts]
            expected, drawn = array.array("q"), blended(scaled([weight for _, weight, _ in texts]))
            for sample in range(steps * ranks * rounds * sequences):
                source, count = next(drawn)
                if sample < (first - 1) * ranks * rounds * sequences:
                    continue
                tokens = texts[source][2]
                windows = len(tokens) // (length + 1)
                window = permuted(count % windows, windows, mix_keys(keys[source], count // windows))
                expected.extend(tokens[window * (length + 1):(window + 1) * (length + 1)])
            if array.array("q", done.stdout) != expected:
                print(f"mixture {case} (seed {SEED}) has other rows")
                return None
            pairs += max(0, steps - first + 1) * ranks * rounds
    return pairs


def main():
    random.seed(SEED)
    pairs = 0
    for case in range(24):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shards = [[[random.randrange(257) for _ in range(random.choice((1, 2, 5, 40, 300)))] for _ in range(random.randrange(1, 60))]
                      for _ in range(random.randrange(1, 6))]
            text = write(folder, shards, u16=case % 2 == 0, masked=case % 8 > 4)
            length = random.choice((1, 7, 16, 31))
            fraction = random.choice((0, 0.05, 0.3))
            seed = random.randrange(1 << 63)
            packed, ranks = case % 3 > 0, case % 4 + 1
            rounds, sequences, steps = random.randrange(1, 4), random.randrange(1, 4), random.randrange(40, 120)
            for train, text in zip((True, False), split(*text, fraction)):
                if len(text[0]) < length + 1:
                    continue
                done = subprocess.run([sys.argv[1], folder, str(fraction), "train" if train else "validation", str(seed), str(length),
                                       str(int(packed)), str(steps), str(ranks), str(rounds), str(sequences)],
                                      stdout=subprocess.PIPE, check=True)
                samples = range(steps * ranks * rounds * sequences) if train else [
                    sample for _ in range(steps) for sample in range(ranks * rounds * sequences)]
                got = array.array("q", done.stdout)
                expected = array.array("q", rows(text, train, seed, length, packed, samples))
                if got != expected:
                    at = next((i for i, (one, two) in enumerate(zip(got, expected)) if one != two), min(len(got), len(expected)))
                    print(f"case {case} (seed {SEED}), train {train}: {len(got)} numbers, expected {len(expected)}; the first other one is "
                          f"number {at}")
                    return 1
                pairs += steps * ranks * rounds
    blends = check_blends()
    if blends is None:
        return 1
    pairs += blends
    print(f"{pairs} pairs of step and microbatch are the same")
    return 0 if pairs > 10_000 else 1


sys.exit(main())
