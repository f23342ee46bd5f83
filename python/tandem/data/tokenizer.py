# SPDX-License-Identifier: Apache-2.0
"""Turns documents into token ids, with Hugging Face's library or byte by byte. What looks like a special token in a document
is plain text, and only tokens that the options request are added."""
import array
import hashlib
import json
import os
import pathlib

from tandem.data.errors import DataError

BATCH_BYTES = 1 << 18  # of text that the library encodes at once; its results need 100 times as much
U16_VOCABULARY = 65500  # below it tokens take two bytes


class Tokenizer:
    """`path`: "bytes", a tokenizer.json, or a folder with one. bos, eos: auto, none, an id, or a token."""

    def __init__(self, path, bos="none", eos="auto", parse_special=False):
        self.path, self._library, self._parse_special = path, None, parse_special
        self.kind, self.digest, settings = "bytes", None, {}
        if path == "bytes":
            self.vocabulary = 257
            known = {"eos": 256, "bos": None, "pad": None}
        else:
            self.kind = "huggingface"
            self.path, settings = self._load(path)
            known = {name: self._id(settings.get(f"{name}_token")) for name in ("bos", "eos", "pad")}
        self.pad = known["pad"]
        self.adds_bos, self.bos = self._choose("bos", bos, known["bos"])
        self.adds_eos, self.eos = self._choose("eos", eos, known["eos"])
        self.token_type = "u16" if self.vocabulary < U16_VOCABULARY else "i32"

    def _load(self, path):
        import tokenizers  # not needed for bytes
        place = pathlib.Path(path)
        file = place / "tokenizer.json" if place.is_dir() else place
        if not file.exists():
            raise DataError(f"--tokenizer: {file}: there is no such file" + (
                "; save it with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
                if place.is_dir() and any(place.iterdir()) else "; give bytes, a tokenizer.json, or a folder with one"))
        content = file.read_bytes()
        if content.startswith(b"version https://git-lfs"):
            raise DataError(f"--tokenizer: {file}: it is a Git LFS pointer and not the file; run git lfs pull")
        try:
            library = tokenizers.Tokenizer.from_str(content.decode())
        except Exception as error:  # the library raises no other type
            raise DataError(f"--tokenizer: {file}: {' '.join(str(error).split())}") from error
        # A tokenizer.json may request truncation or padding.
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = not self._parse_special
        self._library = library
        self.digest = hashlib.sha256(content).hexdigest()
        self.vocabulary = max(library.get_vocab(with_added_tokens=True).values(), default=0) + 1
        settings = file.parent / "tokenizer_config.json"
        try:
            return str(place.absolute()), json.loads(settings.read_text()) if settings.exists() else {}
        except ValueError as error:
            raise DataError(f"--tokenizer: {settings}: it is not JSON: {error}") from error

    def _id(self, token):
        content = token.get("content") if isinstance(token, dict) else token
        return self._library.token_to_id(content) if content else None

    def _choose(self, name, wanted, known):
        """Returns whether documents get the token `name`, and its id."""
        if wanted == "none":
            return False, known
        if wanted == "auto":
            if known is None:
                raise DataError(f"--{name} auto: {self.path} does not say which token that is; give --{name} with one of its "
                                f"special tokens ({', '.join(self._special()) or 'it has none'}), or none")
            return True, known
        if wanted.isascii() and wanted.isdigit():  # an id, even if there is a token of that name
            number = int(wanted) if int(wanted) < self.vocabulary else None
        else:
            number = self._library.token_to_id(wanted) if self._library else None
        if number is None:
            raise DataError(f"--{name}: {wanted} is neither an id below {self.vocabulary} nor a token of {self.path}")
        return True, number

    def _special(self):
        added = self._library.get_added_tokens_decoder().values() if self._library else ()
        return [token.content for token in added if token.special]

    def encode(self, documents):
        """Tokenises documents: tuples of texts, each of which is tokenised separately, (prompt, answer) or (text,). Returns the ids
        of all documents as bytes of a shard, the number of ids of each, and how many of them are before its last text."""
        ids = array.array("H" if self.token_type == "u16" else "i")
        lengths, fronts = array.array("i"), array.array("i")
        before = (self.bos,) if self.adds_bos else ()
        after = (self.eos,) if self.adds_eos else ()
        for batch in _batches(documents):
            encoded = iter(self._encode_batch([text for document in batch for text in document]))
            for document in batch:
                begin = len(ids)
                ids.extend(before)
                for _ in document[:-1]:
                    ids.extend(next(encoded))
                fronts.append(len(ids) - begin)
                ids.extend(next(encoded))
                ids.extend(after)
                lengths.append(len(ids) - begin)
        return ids.tobytes(), lengths, fronts

    def _encode_batch(self, texts):
        if self._library is None:
            return [text.encode() for text in texts]
        return [encoding.ids for encoding in self._library.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids):
        """Returns readable text; bytes that are no text are replaced."""
        if self._library is None:
            return bytes(token for token in ids if 0 <= token < 256).decode(errors="replace")
        return self._library.decode([token for token in ids if 0 <= token < self.vocabulary], skip_special_tokens=False)

    def describe(self):
        """For dataset.json."""
        return {"kind": self.kind, "path": self.path, **({"sha256": self.digest} if self.digest else {}),
                "vocabulary": self.vocabulary, "bos": self.bos, "eos": self.eos, "pad": self.pad,
                "adds_bos": self.adds_bos, "adds_eos": self.adds_eos}


def _batches(documents):
    batch, size = [], 0
    for document in documents:
        length = sum(map(len, document))
        if batch and size + length > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += length
    if batch:
        yield batch


def tokenize_part(tokenizer, fields, raws, has_fields):
    """Bytes, lengths and fronts as of encode, and [(index, kind, why)] of documents that were left out. `fields` of a JSON
    line are its document; only those before the last may be empty."""
    documents, left_out = [], []
    for index, raw in enumerate(raws):
        texts, problem = _texts_of(raw, has_fields, fields)
        if problem:
            left_out.append((index, *problem))
        else:
            documents.append(texts)
    return (*tokenizer.encode(documents), left_out)


def _texts_of(raw, has_fields, fields):
    """The texts of a document, or why there are none."""
    if raw is None:
        return None, ("too long", "it is longer than --max-document")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return None, ("not UTF-8", f"byte {error.start} of it is no UTF-8")
    if has_fields:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            return None, ("broken JSON", str(error))
        for field in fields:
            if not isinstance(line, dict) or field not in line:
                return None, ("without the field", f"there is no field {field}")
            if not isinstance(line[field], str):
                return None, ("no text", f"its field {field} is not text")
            if not _encodes(line[field]):
                return None, ("not UTF-8", f"its field {field} has half of a surrogate pair")
        texts = tuple(line[field] for field in fields)
    else:
        texts = (text,)
    return (texts, None) if texts[-1] else (None, ("empty", "it has no text"))


def _encodes(text):
    try:
        text.encode()
        return True
    except UnicodeEncodeError:
        return False
