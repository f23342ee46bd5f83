# SPDX-License-Identifier: Apache-2.0
"""Models of `transformers` go in (checkpoint.start_from) and out (tandem export): a folder as a user has it trains from
the same loss and gradients, and what is exported loads there with the same weights and logits.
"""
import json
import pathlib
import shutil
import subprocess

import pytest
import safetensors.torch
import torch
import transformers

from cluster import wait_for
from hugging_face import (LENGTH, PREDICTING, SEQUENCES, arrays_of, checkpoint_names, inputs, job_from, make_model, save,
                          stored, write_text)
from test_data import random_documents, write_dataset

TOLERANCE = 1e-5  # of fp32, relative to the loss, and to the norm of a gradient


OLDER = pathlib.Path.home() / ".cache/tandem/transformers-4.57.6/bin/python"
# Where transformers 4.57 computes something else (docs/formats.md), and what it does not have.
OLDER_DIFFERS = {"deepseek-v2", "deepseek-v3", "mamba2", "granite-hybrid", "bamba"}
OLDER_LACKS = {"nemotron-h"}


@pytest.fixture(scope="module")
def older():
    """older(folder, inputs): the logits that transformers 4.57 computes of a folder of files."""
    assert OLDER.exists(), "scripts/setup.sh --tests makes it"
    with subprocess.Popen([OLDER, pathlib.Path(__file__).with_name("load_with_older.py")], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        def logits(folder, tokens):
            torch.save(tokens, folder / "tokens")
            process.stdin.write(f"{folder} {folder / 'tokens'} {folder / 'logits'}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "saved\n", "its error stands above"
            return torch.load(folder / "logits")

        yield logits
        process.stdin.close()


@pytest.mark.parametrize("name,ranks,dtype,expert,packed,made", [
    ("llama", 1, "fp32", 1, False, {}), ("llama", 4, "bf16", 1, True, {}),
    ("llama", 2, "fp16", 1, False, {"tokenizer": "sentencepiece", "spelling": "newer"}),
    ("llama-tied", 2, "fp32", 1, True, {}), ("llama-linear", 3, "fp32", 1, False, {}),
    ("llama-llama3", 2, "fp32", 1, True, {}), ("llama-yarn", 2, "fp32", 1, False, {}),
    ("llama-yarn-mscale", 2, "fp32", 1, True, {}),
    ("mixtral", 1, "fp32", 1, True, {"fused": True, "spelling": "newer"}),
    ("mixtral", 2, "bf16", 2, False, {"tokenizer": "sentencepiece"}),
    ("mixtral", 4, "fp32", 2, True, {"fused": True}), ("mixtral", 3, "fp32", 1, False, {}),
    ("qwen3-moe", 1, "bf16", 1, True, {"fused": True, "spelling": "newer"}), ("qwen3-moe", 2, "fp32", 2, False, {"tokenizer": "sentencepiece"}),
    ("qwen3-moe", 4, "fp32", 2, True, {}),
    ("deepseek-v3", 1, "fp32", 1, True, {}), ("deepseek-v3", 2, "bf16", 2, False, {}),
    ("deepseek-v3", 3, "fp32", 1, True, {"fused": True, "spelling": "newer", "tokenizer": "sentencepiece"}),
    ("deepseek-v3-yarn", 4, "fp32", 2, True, {}),
    ("deepseek-v2", 2, "fp32", 2, True, {}), ("deepseek-v2", 3, "bf16", 1, False, {"fused": True, "spelling": "newer"}),
    ("deepseek-v2-plain", 2, "fp32", 2, False, {"tokenizer": "sentencepiece"}), ("deepseek-v2-groups", 4, "fp32", 2, True, {}),
    ("deepseek-v2-groups", 1, "bf16", 1, False, {"fused": True, "spelling": "newer"}),
    ("llama-biased", 1, "fp32", 1, True, {}), ("qwen3-biased", 2, "fp32", 1, False, {"spelling": "newer"}),
    ("qwen3-moe-biased", 2, "fp32", 2, True, {}), ("olmo2-biased", 3, "bf16", 1, False, {}),
    ("qwen2", 1, "fp32", 1, True, {}), ("qwen2", 4, "bf16", 1, False, {"spelling": "newer"}),
    ("qwen2-window", 2, "fp32", 1, True, {}), ("qwen2-window", 3, "fp32", 1, False, {"spelling": "newer"}),
    ("qwen3", 1, "fp32", 1, False, {"tokenizer": "sentencepiece"}), ("qwen3", 4, "bf16", 1, True, {"spelling": "newer"}),
    ("qwen3-tied", 3, "fp32", 1, True, {}), ("qwen3-window", 2, "fp32", 1, False, {"spelling": "newer"}),
    ("qwen3-moe-window", 3, "fp32", 1, False, {}),
    ("mistral", 2, "fp32", 1, True, {"tokenizer": "sentencepiece"}), ("mistral", 1, "bf16", 1, False, {"spelling": "newer"}),
    ("mistral", 3, "fp32", 1, False, {}), ("mistral-whole", 4, "fp32", 1, True, {}),
    ("olmo2", 1, "fp32", 1, False, {"tokenizer": "sentencepiece"}), ("olmo2", 4, "bf16", 1, True, {"spelling": "newer"}), ("olmo2", 2, "fp32", 1, True, {}),
    ("mamba2", 1, "fp32", 1, False, {"tokenizer": "sentencepiece"}), ("mamba2-tied", 2, "bf16", 1, False, {"spelling": "newer"}),
    ("mamba2", 4, "fp32", 1, False, {}), ("mamba2-tied", 3, "fp32", 1, False, {}),
    ("nemotron-h", 3, "fp32", 1, False, {}), ("nemotron-h", 4, "bf16", 1, False, {}),
    ("granite", 3, "fp32", 1, True, {}), ("granite", 1, "bf16", 1, False, {"spelling": "newer"}),
    ("granite-hybrid", 3, "fp32", 1, False, {}), ("granite-hybrid", 2, "fp32", 2, False, {"fused": True, "spelling": "newer"}),
    ("granite-hybrid-dense", 3, "fp32", 1, False, {}), ("granite-hybrid-dense", 1, "bf16", 1, False, {"spelling": "newer"}),
    ("bamba", 3, "fp32", 1, False, {}), ("bamba", 1, "bf16", 1, False, {"spelling": "newer"}),
    ("nemotron-h", 2, "fp32", 1, False, {"tokenizer": "sentencepiece"}), ("nemotron-h", 1, "bf16", 1, False, {"spelling": "newer", "fused": True}),
    ("qwen3-next", 2, "fp32", 2, False, {}), ("qwen3-next", 1, "bf16", 1, False, {"fused": True, "spelling": "newer"}),
    ("qwen3-next", 3, "fp32", 1, False, {}),
])
def test_a_model_goes_in_and_out(start, tmp_path, older, name, ranks, dtype, expert, packed, made):
    source = tmp_path / "model"
    save(name, source, dtype, **made)
    sequences = 6 if ranks == 3 else SEQUENCES
    tokens = write_text(tmp_path / "text", sequences)
    spec = job_from(name, source, tmp_path, ranks, packed, sequences)
    if expert > 1:
        spec["parallelism"]["expert"] = expert

    cluster = start(workers=ranks)
    cluster.submit(spec)
    cluster.wait_state(name, "SUCCEEDED", 240)
    wait_for("its report", lambda: cluster.step(name) >= 1)
    loss = cluster.reports(name)[0]["loss"]
    ours = arrays_of(tmp_path / "saved" / "step-1")
    manifest = json.loads((tmp_path / "saved" / "step-1" / "manifest.json").read_text())
    assert manifest["origin"]["path"] == str(source)
    log = cluster.cli("logs", name, "--rank", 0).stdout
    assert ("layers that predict further tokens" in log) == (name in PREDICTING)

    model = transformers.AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager", dtype=torch.float32)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    expected = model(**inputs(tokens, packed, model.config), labels=tokens).loss
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=TOLERANCE)
    theirs = checkpoint_names(model, model.config)
    for array, (weight, gradient) in theirs.items():
        assert torch.equal(ours[array].view(weight.shape), weight), array
        difference = (ours[f"{array}/exp_avg"].view(gradient.shape) - gradient).norm().item()
        assert difference <= TOLERANCE * gradient.norm().item(), array

    cluster.cli("export", name, "--to", tmp_path / "fp32", "--dtype", "fp32", "--max-shard", "1MB")
    cluster.cli("export", tmp_path / "saved", "--step", 1, "--to", tmp_path / "bf16")
    with torch.no_grad():
        logits = model(**inputs(tokens, packed, model.config)).logits
    for exported in ("fp32", "bf16"):
        loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / exported, attn_implementation="eager", output_loading_info=True, dtype="auto")
        assert not any(report.values()), report
        assert loaded.config.eos_token_id == 2 and loaded.generation_config.eos_token_id == 2
        weights = dict(loaded.state_dict())
        for weight, value in model.state_dict().items():
            bias = weight.endswith("e_score_correction_bias")
            rounded = value if bias or exported == "fp32" else value.to(torch.bfloat16)
            assert weights[weight].dtype == rounded.dtype and torch.equal(weights[weight], rounded), weight
        if exported == "fp32":
            with torch.no_grad():
                assert torch.equal(loaded(**inputs(tokens, packed, model.config)).logits, logits)
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / exported)
        assert tokenizer.decode(tokenizer.encode("the weights")) == "the weights"
    if name not in OLDER_LACKS:
        difference = (older(tmp_path / "fp32", inputs(tokens, packed, model.config)) - logits).abs().max() / logits.abs().max()
        assert difference >= 1e-2 if name in OLDER_DIFFERS else difference <= 1e-5, difference
    make_model(name).save_pretrained(tmp_path / "hub")  # under the hub's names
    assert set(stored(tmp_path / "fp32")) == set(stored(tmp_path / "hub"))
    assert f"| tokens | {sequences * LENGTH} |" in (tmp_path / "bf16" / "README.md").read_text()


def save_with(model, folder, **changes):
    """Saves the model in one file, with these tensors instead of its own (None: without it)."""
    model.save_pretrained(folder)
    tensors = stored(folder)
    for name, value in changes.pop("tensors", {}).items():
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def test_unreadable_weights_are_refused_with_the_way_out(start, tmp_path):
    cluster = start(workers=2)
    write_text(tmp_path / "text")
    model = make_model("llama")
    tied = make_model("llama-tied")
    embedding = tied.state_dict()["model.embed_tokens.weight"]
    infinite = model.state_dict()["model.norm.weight"].clone()
    infinite[5] = float("inf")
    at_submit = {
        "pointer": (lambda folder: (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n"),
                    "Git LFS pointer"),
        "partial": (lambda folder: (folder / "model.safetensors").write_bytes(
            (folder / "model.safetensors").read_bytes()[:-100]), "is the download complete?"),
        "missing": (lambda folder: save_with(model, folder, tensors={"model.norm.weight": None, "lm_head.weight": None,
                                                                     "extra": infinite}),
                    "2 tensors are missing (model.norm.weight, lm_head.weight); 1 tensor is not of this model (extra)"),
        "fp64": (lambda folder: save_with(model, folder, tensors={"model.norm.weight": infinite.double()}),
                 "model.norm.weight is F64"),
        "shape": (lambda folder: save_with(model, folder, tensors={"model.norm.weight": infinite[:7].contiguous()}),
                  "model.norm.weight is [7], not [48]"),
    }
    for name, (damage, said) in at_submit.items():
        folder = tmp_path / name
        save_with(model, folder)
        damage(folder)
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(job_from(name, folder, tmp_path, 2)))
        refused = cluster.cli("submit", "-f", path, check=False)
        assert refused.returncode == 4 and said in refused.stderr, refused.stderr
    at_start = {
        "fp32": (model, {"tensors": {"model.norm.weight": infinite}}, "infinite or NaN are in model.norm.weight:"),
        "fp16": (model, {"tensors": {"model.norm.weight": infinite.half()}},
                 "infinite or NaN are in model.norm.weight, of fp16"),
        "tied": (tied, {"tensors": {"lm_head.weight": embedding + 1}},
                 "the bits differ of lm_head.weight and model.embed_tokens.weight"),
    }
    for name, (base, changes, said) in at_start.items():
        save_with(base, tmp_path / f"start-{name}", **changes)
        cluster.submit(job_from(name, tmp_path / f"start-{name}", tmp_path, 2))
        cause = cluster.wait_state(name, "FAILED")["cause"]
        assert cause["reason"] == "StartWeightsUnusable" and said in cause["message"], cause


def test_random_weights_ignore_their_tokenizers_model(start, tmp_path):
    """A text's tokenizer lies in the folder of another model of the family, which rotates otherwise."""
    folder, other = tmp_path / "model", tmp_path / "other"
    save("deepseek-v3", folder)
    shutil.copytree(folder, other)
    config = {**json.loads((folder / "config.json").read_text()), "rope_interleave": False, "eos_token_id": 9, "mine": 1}
    (other / "config.json").write_text(json.dumps(config))
    documents = random_documents()
    text = write_dataset(tmp_path / "text", documents)
    dataset = json.loads((text / "dataset.json").read_text())
    dataset["tokenizer"]["path"] = str(other)
    (text / "dataset.json").write_text(json.dumps(dataset))
    spec = job_from("scratch", folder, tmp_path, 2)
    del spec["checkpoint"]["start_from"]
    spec["data"]["shuffle"] = False
    cluster = start(workers=2)
    cluster.submit(spec)
    cluster.wait_state("scratch", "SUCCEEDED", 240)
    wait_for("its report", lambda: cluster.step("scratch") >= 1)
    loss = cluster.reports("scratch")[0]["loss"]
    source = tmp_path / "saved" / "source"
    assert sorted(path.name for path in source.iterdir()) == ["dataset.json", "tokenizer.json", "tokenizer_config.json"]

    for name in ("config.json", "generation_config.json"):  # as earlier builds did
        shutil.copy(other / name, source)
    cluster.cli("export", "scratch", "--to", tmp_path / "out", "--dtype", "fp32")
    exported = json.loads((tmp_path / "out" / "config.json").read_text())
    assert exported["rope_interleave"] is True and exported["eos_token_id"] == 0 and "mine" not in exported
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text())["eos_token_id"] == 0
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", attn_implementation="eager")
    tokens = [token for document in documents for token in document]
    windows = torch.tensor(tokens[:SEQUENCES * (LENGTH + 1)]).view(SEQUENCES, LENGTH + 1)
    assert loss == pytest.approx(model(input_ids=windows, labels=windows).loss.item(), rel=TOLERANCE)


def test_weights_start_a_job_once(start, tmp_path):
    """With resume: newest a job starts from weights only where there is no checkpoint; a step gives its weights alone."""
    write_text(tmp_path / "text")
    source = tmp_path / "model"
    save("llama", source)
    cluster = start(workers=2)
    spec = job_from("first", source, tmp_path, 2, resume="newest")
    spec["training"]["optimizer"] = {"learning_rate": 1e-3}
    (tmp_path / "saved" / "source").mkdir(parents=True)  # as a start that was killed leaves it
    cluster.submit(spec)
    cluster.wait_state("first", "SUCCEEDED", 240)
    assert (tmp_path / "saved" / "source" / "tokenizer.json").exists()
    begun = cluster.job("first")["attempts"][0]["started_from"]
    manifest = json.loads((tmp_path / "saved" / "step-1" / "manifest.json").read_text())
    assert begun == {"kind": "WEIGHTS", **{key: manifest["origin"][key] for key in ("path", "digest")}}
    assert begun["digest"] in cluster.cli("describe", "first").stdout
    spec["name"], spec["training"]["steps"] = "second", 2
    cluster.submit(spec)
    attempt = cluster.wait_state("second", "SUCCEEDED", 240)["attempts"][0]
    assert attempt["resumed_step"] == 1
    saved = tmp_path / "saved" / "step-1"
    digest = (saved / "manifest.json").read_bytes()
    assert attempt["started_from"]["kind"] == "CHECKPOINT" and attempt["started_from"]["path"] == str(saved)
    assert attempt["started_from"]["digest"].encode() in digest
    origins = [json.loads((tmp_path / "saved" / f"step-{step}" / "manifest.json").read_text())["origin"] for step in (1, 2)]
    assert origins[0] == origins[1] and origins[0]["path"] == str(source)

    step = tmp_path / "saved" / "step-2"
    again = job_from("again", step, tmp_path, 2, directory=str(tmp_path / "again"))
    again["model"] = {"hugging_face": str(source)}
    cluster.submit(again)
    cluster.wait_state("again", "SUCCEEDED", 240)
    before, after = arrays_of(step), arrays_of(tmp_path / "again" / "step-1")
    assert all(torch.equal(before[name], after[name]) for name in before if "/" not in name)
    assert json.loads((tmp_path / "again" / "step-1" / "manifest.json").read_text())["origin"]["path"] == str(step)
    assert (tmp_path / "again" / "source" / "tokenizer.json").exists()

    scratch = {**again, "name": "scratch", "checkpoint": {"directory": str(tmp_path / "scratch")}}
    cluster.submit(scratch)
    assert cluster.wait_state("scratch", "SUCCEEDED", 240)["attempts"][0]["started_from"] == {"kind": "SCRATCH"}
    cluster.cli("export", "scratch", "--to", tmp_path / "random")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "random")
    assert loaded.config.bos_token_id is None and loaded.config.eos_token_id is None, "its tokens are bytes"
    assert loaded.config.max_position_embeddings == 128 and loaded.generation_config.eos_token_id is None

    moved = {**spec, "name": "moved", "checkpoint": {"directory": str(tmp_path / "moved"), "resume": str(step)}}
    moved["training"] = {**spec["training"], "steps": 3}
    cluster.submit(moved)
    cluster.wait_state("moved", "SUCCEEDED", 240)
    assert sorted(path.name for path in (tmp_path / "moved" / "source").iterdir()) == ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    cluster.cli("export", step, "--to", tmp_path / "out")
    for arguments, said in (((step, "--to", tmp_path / "out"), "is there already"),
                            ((tmp_path / "saved", "--step", 9, "--to", tmp_path / "no"), "the newest is step 2"),
                            ((tmp_path / "empty", "--to", tmp_path / "no"), "there is no such folder"),
                            ((step, "--to", tmp_path / "no", "--max-shard", "5"), "write 500MB or 5GB"),
                            ((step, "--to", tmp_path / "no", "--tokenizer", tmp_path), "no file of a tokenizer")):
        refused = cluster.cli("export", *arguments, check=False)
        assert refused.returncode != 0 and said in refused.stderr, refused.stderr
    assert not list(tmp_path.glob("no*"))
