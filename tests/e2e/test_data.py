# SPDX-License-Identifier: Apache-2.0
"""Jobs on folders of tokens, which are written here from the description of the format (docs/formats.md)."""
import array
import json
import pathlib
import random
import struct

from cluster import tiny_job

SEED = 20261128
VOCABULARY = 300


def write_dataset(folder, documents, vocabulary=VOCABULARY):
    """One shard of u16."""
    folder.mkdir()
    tokens = [token for document in documents for token in document]
    begins = [0]
    for document in documents:
        begins.append(begins[-1] + 2 * len(document))
    (folder / "a.bin").write_bytes(array.array("H", tokens).tobytes())
    (folder / "a.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(documents), len(documents) + 1) +
                                   array.array("i", map(len, documents)).tobytes() + array.array("q", begins[:-1]).tobytes() +
                                   array.array("q", range(len(documents) + 1)).tobytes())
    (folder / "dataset.json").write_text(json.dumps({
        "format": "tandem-dataset", "version": 1, "token_type": "u16", "documents": len(documents), "tokens": len(tokens),
        "tokenizer": {"kind": "huggingface", "path": "/models/x", "sha256": "0" * 64, "vocabulary": vocabulary, "eos": 0},
        "shards": [{"name": "a", "documents": len(documents), "tokens": len(tokens)}]}))
    return folder


def random_documents():
    """Of few tokens each that follow each other often, so that there is something to learn."""
    generator = random.Random(SEED)
    return [[(start + i * i) % 40 + 1 for i in range(generator.randrange(5, 200))] + [0]
            for start in (generator.randrange(40) for _ in range(400))]


def job(name, folder, directory, ranks, **data):
    spec = tiny_job(name, ranks=ranks, steps=12, directory=directory, every_steps=6, validate_every_steps=6, validation_batches=2)
    spec["model"]["vocab_size"] = VOCABULARY
    spec["training"]["global_batch_size"] = 8
    spec["data"] = {"train": str(folder), **data}
    return spec


def run(cluster, spec):
    cluster.submit(spec)
    cluster.wait_state(spec["name"], "SUCCEEDED", 120)
    lines = (pathlib.Path(spec["checkpoint"]["directory"]) / "metrics.jsonl").read_text().splitlines()
    return {line["step"]: [line.get(key) for key in ("loss", "validation_loss")] for line in map(json.loads, lines)}


def test_losses_on_tokens_do_not_depend_on_ranks(start, tmp_path):
    cluster = start(workers=2, slots=1)
    folder = write_dataset(tmp_path / "tokens", random_documents())
    for packed in ({}, {"documents": "packed"}):
        kind = "packed" if packed else "stream"
        one = run(cluster, job(f"{kind}-one", folder, tmp_path / f"{kind}-one", 1, **packed))
        two = run(cluster, job(f"{kind}-two", folder, tmp_path / f"{kind}-two", 2, **packed))
        assert one == two and len(one) == 13
        assert two[12][0] < two[1][0] and two[12][1] < two[0][1], "it learns"
        resumed = job(f"{kind}-on", folder, tmp_path / f"{kind}-on", 2, **packed)
        resumed["checkpoint"]["resume"] = str(tmp_path / f"{kind}-one" / "step-6")
        assert run(cluster, resumed) == {step: one[step] for step in range(7, 13)}


def test_a_mixture_has_its_shares_losses_and_place(start, tmp_path):
    cluster = start(workers=2, slots=1)
    documents = random_documents()
    texts = {name: write_dataset(tmp_path / name, documents[begin::3]) for begin, name in enumerate(("a", "b", "held"))}

    def mixture(name, ranks, first, second):
        spec = job(name, "", tmp_path / name, ranks)
        spec["data"] = {"sources": [{"path": str(texts["a"]), "weight": first}, {"path": str(texts["b"]), "name": "second", "weight": second}],
                        "validation_sets": [{"path": str(texts["held"])}]}
        return spec

    one, two = run(cluster, mixture("one", 1, 0.75, 0.25)), run(cluster, mixture("two", 2, 0.75, 0.25))
    assert one == two
    last = json.loads((tmp_path / "two" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["validation_loss/held"] == last["validation_loss"] and last["epoch/a"] > 0 and last["epoch/second"] > 0
    shown = cluster.cli("checkpoint", "show", tmp_path / "two" / "step-6").stdout
    assert "a up to sequence 36" in shown and "second up to sequence 12" in shown and "weight 75.0 %" in shown
    resumed = mixture("other", 2, 0.5, 0.5)
    resumed["checkpoint"]["resume"] = str(tmp_path / "two" / "step-6")
    run(cluster, resumed)
    assert "none is read again or skipped" in cluster.cli("events", "other").stdout
    assert "from step 7 in batches of 8: a up to sequence 60" in cluster.cli("checkpoint", "show", tmp_path / "other" / "step-12").stdout
