# SPDX-License-Identifier: Apache-2.0
"""Models of `transformers` go in (checkpoint.start_from) and out (tandem export): a folder as a user has it trains from
the same loss and gradients, and what is exported loads there with the same weights and logits.

The weights are large and the norms are not 1, so that what is left out shows; a job trains on one step's windows, its
learning rate moves no weight, and its first moment is the gradient (test_transformers.py).
"""
import copy
import json
import random

import pytest
import safetensors.torch
import tokenizers
import torch
import transformers

from cluster import tiny_job, wait_for
from test_transformers import arrays_of, checkpoint_names

LENGTH = 48
SEQUENCES = 8
SEED = 21
TOLERANCE = 1e-5  # of fp32, relative to the loss, and to the norm of a gradient

# transformers refuses Llamas whose heads do not divide the hidden size.
SIZES = {"hidden_size": 48, "intermediate_size": 56, "num_attention_heads": 3, "num_key_value_heads": 1,
         "vocab_size": 320, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2}
UNEVEN = {**SIZES, "hidden_size": 40}
LATENT = {**UNEVEN, "num_key_value_heads": 3, "q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 6,
          "qk_rope_head_dim": 4, "v_head_dim": 8}
MODELS = {
    "llama": transformers.LlamaConfig(num_hidden_layers=3, head_dim=12, rope_theta=500.0, rms_norm_eps=1e-4, **SIZES),
    "llama-tied": transformers.LlamaConfig(num_hidden_layers=2, head_dim=8, tie_word_embeddings=True, **SIZES),
    "mixtral": transformers.MixtralConfig(num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2,
                                          head_dim=12, **UNEVEN),
    "qwen3-moe": transformers.Qwen3MoeConfig(num_hidden_layers=3, num_experts=8, num_experts_per_tok=3, head_dim=12,
                                             moe_intermediate_size=20, norm_topk_prob=True, decoder_sparse_step=2,
                                             **UNEVEN),
    "deepseek-v3": transformers.DeepseekV3Config(num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=8,
                                                 n_shared_experts=2, num_experts_per_tok=4, n_group=4, topk_group=2,
                                                 moe_intermediate_size=20, routed_scaling_factor=2.5,
                                                 num_nextn_predict_layers=0, **LATENT),
}
# beta_fast and beta_slow are such that dims lie between them: a short text turns few of 12.
ROPE = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 12},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12, "beta_fast": 0.5, "beta_slow": 0.1},
    "yarn-mscale": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12, "beta_fast": 0.5, "beta_slow": 0.1,
                    "mscale": 1.5, "mscale_all_dim": 0.5, "truncate": False},
}
for kind, scaling in ROPE.items():
    MODELS[f"llama-{kind}"] = transformers.LlamaConfig(num_hidden_layers=2, head_dim=12, rope_scaling=dict(scaling),
                                                       rope_theta=1000.0, **SIZES)
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def make_model(config, dtype):
    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm" in name
            parameter.copy_(1 + 0.3 * (2 * torch.rand_like(parameter) - 1) if norm else 0.2 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.3 * (2 * torch.rand_like(buffer) - 1))
    return model.to(TYPES[dtype])


def make_tokenizer(folder):
    """A byte-level BPE, as Llama 3 has one, trained on a little text."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=320, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["the weights of a model, and the text of a model"] * 20, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast",
                                                              "bos_token": "<s>", "eos_token": "</s>"}))


def job_from(name, folder, tmp_path, ranks, **checkpoint):
    spec = tiny_job(name, ranks=ranks, steps=1, directory=tmp_path / "saved", clip_grad_norm=0, sequence_length=LENGTH,
                    micro_batch_size=2, global_batch_size=SEQUENCES)
    spec["training"]["optimizer"] = {"learning_rate": 1e-30, "beta1": 0, "weight_decay": 0}
    spec["model"] = {"hugging_face": str(folder)}
    spec["data"] = {"train": str(tmp_path / "text"), "validation_fraction": 0}
    spec["checkpoint"].update({"start_from": str(folder), **checkpoint})
    return spec


def write_text(path):
    engine = random.Random(SEED)
    windows = [[engine.randrange(256) for _ in range(LENGTH + 1)] for _ in range(SEQUENCES)]
    path.write_bytes(bytes(token for window in windows for token in window))
    return torch.tensor(windows)


def stored(folder):
    """All tensors of a folder, by name."""
    found = {}
    for file in folder.glob("*.safetensors"):
        found.update(safetensors.torch.load_file(file))
    return found


@pytest.mark.parametrize("name,ranks,dtype,more", [
    ("llama", 1, "fp32", {}), ("llama", 4, "bf16", {}), ("llama", 2, "fp16", {}), ("llama-tied", 2, "fp32", {}),
    ("llama-linear", 2, "fp32", {}), ("llama-llama3", 2, "fp32", {}), ("llama-yarn", 2, "fp32", {}), ("llama-yarn-mscale", 2, "fp32", {}),
    ("mixtral", 2, "bf16", {"parallelism": {"expert": 2}}), ("qwen3-moe", 4, "fp32", {"parallelism": {"expert": 2}}),
    ("deepseek-v3", 2, "fp32", {"model": {"moe": {"router_bias_update_rate": 1e-30}}}),
])
def test_a_model_goes_in_and_out(start, tmp_path, name, ranks, dtype, more):
    source = tmp_path / "model"
    make_model(MODELS[name], dtype).save_pretrained(source, max_shard_size="60KB")
    make_tokenizer(source)
    tokens = write_text(tmp_path / "text")
    assert len(list(source.glob("model-*.safetensors"))) > 1
    spec = job_from(name, source, tmp_path, ranks)
    for block, fields in more.items():
        spec[block].update(fields)

    cluster = start(workers=ranks)
    cluster.submit(spec)
    cluster.wait_state(name, "SUCCEEDED", 240)
    wait_for("its report", lambda: cluster.step(name) >= 1)
    loss = cluster.reports(name)[0]["loss"]
    ours = arrays_of(tmp_path / "saved" / "step-1")
    manifest = json.loads((tmp_path / "saved" / "step-1" / "manifest.json").read_text())
    assert manifest["origin"]["path"] == str(source)

    model = transformers.AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager", dtype=torch.float32)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    expected = model(input_ids=tokens, labels=tokens).loss
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=TOLERANCE)
    theirs = checkpoint_names(model, MODELS[name])
    for array, (weight, gradient) in theirs.items():
        assert torch.equal(ours[array].view(weight.shape), weight), array
        difference = (ours[f"{array}/exp_avg"].view(gradient.shape) - gradient).norm().item()
        assert difference <= TOLERANCE * gradient.norm().item(), array

    cluster.cli("export", name, "--to", tmp_path / "fp32", "--dtype", "fp32", "--max-shard", "1MB")
    cluster.cli("export", tmp_path / "saved", "--step", 1, "--to", tmp_path / "bf16")
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
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
                assert torch.equal(loaded(input_ids=tokens).logits, logits)
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / exported)
        assert tokenizer.decode(tokenizer.encode("the weights")) == "the weights"
    assert set(stored(tmp_path / "fp32")) == set(stored(source))
    assert "| tokens | 384 |" in (tmp_path / "bf16" / "README.md").read_text()


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


def test_what_cannot_be_read_is_refused_with_the_way_out(start, tmp_path):
    cluster = start(workers=2)
    write_text(tmp_path / "text")
    model = make_model(MODELS["llama"], "fp32")
    tied = make_model(MODELS["llama-tied"], "fp32")
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


def test_weights_start_a_job_once(start, tmp_path):
    """With resume: newest a job starts from weights only where there is no checkpoint; a step gives its weights alone."""
    write_text(tmp_path / "text")
    source = tmp_path / "model"
    make_model(MODELS["llama"], "fp32").save_pretrained(source)
    make_tokenizer(source)
    cluster = start(workers=2)
    spec = job_from("first", source, tmp_path, 2, resume="newest")
    spec["training"]["optimizer"] = {"learning_rate": 1e-3}
    (tmp_path / "saved" / "source").mkdir(parents=True)  # as a start that was killed leaves it
    cluster.submit(spec)
    cluster.wait_state("first", "SUCCEEDED", 240)
    assert (tmp_path / "saved" / "source" / "tokenizer.json").exists()
    spec["name"], spec["training"]["steps"] = "second", 2
    cluster.submit(spec)
    assert cluster.wait_state("second", "SUCCEEDED", 240)["attempts"][0]["resumed_step"] == 1
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

    cluster.cli("export", step, "--to", tmp_path / "out")
    for arguments, said in (((step, "--to", tmp_path / "out"), "is there already"),
                            ((tmp_path / "saved", "--step", 9, "--to", tmp_path / "no"), "the newest is step 2"),
                            ((tmp_path / "empty", "--to", tmp_path / "no"), "there is no such folder"),
                            ((step, "--to", tmp_path / "no", "--max-shard", "5"), "write 500MB or 5GB"),
                            ((step, "--to", tmp_path / "no", "--tokenizer", tmp_path), "no file of a tokenizer")):
        refused = cluster.cli("export", *arguments, check=False)
        assert refused.returncode != 0 and said in refused.stderr, refused.stderr
    assert not list(tmp_path.glob("no*"))


# What a key of a config.json means shows in the loss: a reader that left it out would pass no test above.
CHANGED = {
    "llama": {"rope_theta": 700.0, "rms_norm_eps": 1e-2},
    "llama-linear": {"factor": 2.5},
    "llama-llama3": {"factor": 3.0, "low_freq_factor": 0.5, "high_freq_factor": 6.0, "original_max_position_embeddings": 20},
    "llama-yarn": {"factor": 3.0, "beta_fast": 1.2, "beta_slow": 0.25, "original_max_position_embeddings": 20,
                   "attention_factor": 4.0, "truncate": False},
    "llama-yarn-mscale": {"mscale": 1.0, "mscale_all_dim": 1.0, "truncate": True},
}


@pytest.mark.parametrize("name", CHANGED)
def test_every_key_that_means_something_changes_the_loss(start, tmp_path, name):
    make_model(MODELS[name], "fp32").save_pretrained(tmp_path / "model")
    write_text(tmp_path / "text")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    cluster = start(workers=1)
    losses = {}
    for key, value in {"": None, **CHANGED[name]}.items():
        changed = json.loads(json.dumps(config))
        if key:
            (changed["rope_parameters"] if key in changed.get("rope_parameters", {}) or name != "llama" else changed)[key] = value
        (tmp_path / "model" / "config.json").write_text(json.dumps(changed))
        spec = job_from(f"job-{len(losses)}", tmp_path / "model", tmp_path, 1, directory=str(tmp_path / f"saved-{len(losses)}"))
        cluster.submit(spec)
        cluster.wait_state(spec["name"], "SUCCEEDED", 240)
        wait_for("its report", lambda: cluster.step(spec["name"]) >= 1)
        losses[key] = cluster.reports(spec["name"])[0]["loss"]
    print(name, losses)
    for key in CHANGED[name]:
        assert abs(losses[key] - losses[""]) >= 1e-3, key
