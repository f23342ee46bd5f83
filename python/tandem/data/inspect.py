# SPDX-License-Identifier: Apache-2.0
"""`tandem data inspect`: shows what token files contain."""
import collections
import hashlib
import os

from tandem.data.errors import DataError
from tandem.data.token_files import Index, open_tokens
from tandem.data.tokenizer import Tokenizer

BAR = 40
MOST_COUNTED = 1 << 24   # tokens whose frequencies are counted
SAMPLES = 256            # places from which they are taken
FREQUENT = 10
SHOWN_TOKENS = 64        # of a document


def inspect(path, form="auto", token_type=None, tokenizer=None, sequence_length=None, documents=3, say=print):
    """Prints a description of the tokens at `path`. Raises DataError."""
    tokens = open_tokens(path, form, token_type)
    library = _tokenizer(tokens, tokenizer, say)
    _say_counts(tokens, sequence_length, say)
    _say_lengths(tokens, say)
    _say_frequencies(tokens, library, say)
    _say_documents(tokens, library, documents, say)


def _row(say, name, value):
    say(f"{name:<14}{value}")


def _tokenizer(tokens, path, say):
    """Returns the tokenizer to decode with; None if there is none."""
    said = tokens.description["tokenizer"] if tokens.description else None
    if path is None and said and said["kind"] == "bytes":
        path = "bytes"
    elif path is None and said and isinstance(said.get("path"), str):
        path = said["path"]
        file = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
        try:
            with open(file, "rb") as content:
                same = hashlib.sha256(content.read()).hexdigest() == said.get("sha256")
        except OSError:
            same = False
        if not same:
            say(f"the tokenizer that made it is no longer at {shown(path)}: nothing is decoded (--tokenizer names another place)")
            return None
    return Tokenizer(path, "none", "none") if path else None


def _say_counts(tokens, sequence_length, say):
    said = tokens.description
    _row(say, "format", f"{tokens.form}, {tokens.files[0].type}, {len(tokens.files)} {'file' if len(tokens.files) == 1 else 'files'}")
    if said:
        of = said["tokenizer"]
        ids = ", ".join(f"{key} {of[key]}" for key in ("bos", "eos", "pad") if of.get(key) is not None)
        _row(say, "tokenizer", f"{shown(str(of.get('path', of['kind'])))}, vocabulary {of['vocabulary']}" + (f", {ids}" if ids else ""))
        left_out = collections.Counter()
        inputs = said.get("inputs")
        for source in inputs if isinstance(inputs, list) else ():
            counts = source.get("left_out") if isinstance(source, dict) else None
            left_out.update({kind: count for kind, count in (counts or {}).items() if isinstance(count, int)})
        _row(say, "inputs", f"{len(inputs) if isinstance(inputs, list) else 0} files"
             + "".join(f", {count} left out ({shown(kind)})" for kind, count in sorted(left_out.items())))
    _row(say, "tokens", tokens.count)
    if sequence_length:
        windows, rest = divmod(tokens.count, sequence_length + 1)
        _row(say, "sequences", f"{windows} of {sequence_length} tokens; {rest} tokens at the end are not used")


def _say_lengths(tokens, say):
    """Prints a histogram of the documents' lengths, by powers of two."""
    if not tokens.files[0].index:
        _row(say, "documents", "not known: these files have no index")
        return
    classes, shortest, longest, count = collections.Counter(), None, 0, 0
    for file in tokens.files:
        for length in Index(file.index).lengths():
            if length < 0:
                raise DataError(f"{file.index}: a sequence has {length} tokens; see tandem data check")
            classes[length.bit_length()] += 1
            shortest = length if shortest is None else min(shortest, length)
            longest, count = max(longest, length), count + 1
    _row(say, "documents", count)
    if not count:
        return
    _row(say, "lengths", f"{shortest} to {longest} tokens, {tokens.count / count:.1f} in the mean")
    most = max(classes.values())
    for bits in range(min(classes), max(classes) + 1):
        first, last = (1 << bits >> 1), (1 << bits) - 1
        name = f"{first}-{last}" if last > first else f"{last}"
        say(f"{name:>23}  {'#' * round(BAR * classes[bits] / most):<{BAR}} {classes[bits]}")


def _say_frequencies(tokens, library, say):
    counts = collections.Counter()
    for file, begin, count in _places(tokens):
        for _, block in file.blocks(begin, count):
            counts.update(block)
    total = sum(counts.values())
    if not total:
        return
    of = "" if total == tokens.count else f" of {total} tokens from {SAMPLES} places"
    _row(say, "most frequent", "token, share" + of)
    for token, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:FREQUENT]:
        text = f"  {shown(library.decode([token]))}" if library else ""
        say(f"{token:>23}  {count / total:6.2%}{text}")


def _places(tokens):
    """Returns (file, begin, count) of all tokens, or of SAMPLES pieces, evenly spread."""
    if tokens.count <= MOST_COUNTED:
        return [(file, 0, file.count) for file in tokens.files]
    size, places = MOST_COUNTED // SAMPLES, []
    starts = [number * (tokens.count - size) // (SAMPLES - 1) for number in range(SAMPLES)]
    before = 0
    for file in tokens.files:
        places += [(file, start - before, size) for start in starts if before <= start < before + file.count]
        before += file.count
    return places


def _say_documents(tokens, library, wanted, say):
    file = tokens.files[0]
    lengths = Index(file.index).lengths() if file.index else iter((min(file.count, SHOWN_TOKENS),))
    begin = 0
    for number, length in zip(range(wanted), lengths):
        ids = []
        for _, block in file.blocks(begin, min(length, SHOWN_TOKENS)):
            ids.extend(block)
        begin += length
        text = shown(library.decode(ids)) if library else " ".join(map(str, ids))
        say(f"document {number} ({length} tokens): {text}" + (" ..." if length > len(ids) else ""))


def shown(text):
    """Escapes what would break the line or control the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text)
