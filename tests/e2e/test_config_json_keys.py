# SPDX-License-Identifier: Apache-2.0
"""Every key of a config.json is read as `transformers` reads it, or is refused.

A key that means something changes the loss of the same weights, or the weights no longer fit; where a file is silent,
its family's default counts, as transformers' own classes have it.
"""
import copy
import json
import shutil

import huggingface_hub.errors
import pytest

from cluster import tiny_job, wait_for
from hugging_face import MODELS, job_from, save, write_text

# Each of these changes the loss by 1e-3 at least.
CHANGED = {
    "llama": {"rope_theta": 700.0, "rms_norm_eps": 1e-2},
    "llama-linear": {"factor": 2.5},
    "llama-llama3": {"factor": 3.0, "low_freq_factor": 0.5, "high_freq_factor": 6.0, "original_max_position_embeddings": 20},
    "llama-yarn": {"factor": 16.0, "beta_fast": 1.2, "beta_slow": 0.25, "original_max_position_embeddings": 20,
                   "attention_factor": 4.0, "truncate": False},
    "llama-yarn-mscale": {"mscale": 1.0, "mscale_all_dim": 1.0, "truncate": True},
    "mixtral": {"rope_theta": 30.0, "rms_norm_eps": 1e-1, "num_experts_per_tok": 3, "sliding_window": 5},
    "mistral": {"rope_theta": 30.0, "rms_norm_eps": 1e-1, "sliding_window": 12},
    "qwen2": {"rope_theta": 30.0, "rms_norm_eps": 1e-1},
    "qwen2-window": {"sliding_window": 12, "use_sliding_window": False, "max_window_layers": 2,
                     "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    "qwen3": {"rope_theta": 30.0, "rms_norm_eps": 1e-1},
    "qwen3-window": {"sliding_window": 8, "use_sliding_window": False, "max_window_layers": 2,
                     "layer_types": ["sliding_attention", "full_attention"]},
    "qwen3-moe-window": {"sliding_window": 8, "use_sliding_window": False},
    "olmo2": {"rope_theta": 30.0, "rms_norm_eps": 1e-1},
    "deepseek-v2-groups": {"n_group": 6, "topk_group": 3, "topk_method": "greedy"},
    "deepseek-v2": {"rope_theta": 100.0, "rms_norm_eps": 1e-1, "num_experts_per_tok": 2, "routed_scaling_factor": 2.5,
                    "factor": 2.0, "beta_fast": 1.2, "beta_slow": 0.01, "original_max_position_embeddings": 20,
                    "mscale": 6.0, "mscale_all_dim": 2.0, "attention_factor": 4.0, "truncate": True},
    "qwen3-moe": {"rope_theta": 30.0, "rms_norm_eps": 1e-1, "num_experts_per_tok": 2, "norm_topk_prob": False},
    "deepseek-v3": {"rms_norm_eps": 1e-1, "n_group": 2, "topk_group": 4, "norm_topk_prob": False,
                    "routed_scaling_factor": 1.5},
    "deepseek-v3-yarn": {"rope_theta": 100.0, "num_experts_per_tok": 2, "factor": 2.0, "beta_fast": 1.2, "beta_slow": 0.01,
                         "original_max_position_embeddings": 20, "mscale": 6.0, "mscale_all_dim": 2.0,
                         "attention_factor": 4.0, "truncate": True},
    "mamba2": {"layer_norm_epsilon": 1e-1},
    "nemotron-h": {"layer_norm_epsilon": 1e-1},
    "granite": {"rope_theta": 30.0, "rms_norm_eps": 1e-1, "embedding_multiplier": 2.0, "attention_multiplier": 0.1,
                "residual_multiplier": 0.8, "logits_scaling": 4.0},
    "granite-hybrid": {"rope_theta": 10.0, "rms_norm_eps": 1e-1, "num_experts_per_tok": 6, "embedding_multiplier": 1.0,
                       "attention_multiplier": 0.1, "residual_multiplier": 0.8, "logits_scaling": 4.0,
                       "position_embedding_type": "nope"},
    "bamba": {"rope_theta": 30.0, "rms_norm_eps": 1e-1},
    "qwen3-next": {"rope_theta": 30.0, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-1, "num_experts_per_tok": 2,
                   "norm_topk_prob": False},
}
# With another one of these the weights do not fit, which is said before one is read.
OTHER_SIZES = {"vocab_size": 321, "hidden_size": 36, "intermediate_size": 57, "num_hidden_layers": 3, "num_attention_heads": 2,
               "num_key_value_heads": 3}
OTHER_HEADS = {**OTHER_SIZES, "head_dim": 10}
LATENT_SIZES = {"num_hidden_layers": 2, "num_key_value_heads": 1, "n_routed_experts": 12, "n_shared_experts": 1,
                "moe_intermediate_size": 21, "first_k_dense_replace": 2, "q_lora_rank": 13, "kv_lora_rank": 11,
                "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 9}
MIXER_SIZES = {"hidden_size": 96, "num_hidden_layers": 2, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_expand": 4,
               "mamba_d_state": 11, "mamba_d_conv": 3}
SIZES = {
    "llama": {**OTHER_HEADS, "num_hidden_layers": 2, "attention_bias": True},
    "mixtral": {**OTHER_HEADS, "num_local_experts": 5},
    "qwen3-moe": {**OTHER_HEADS, "num_hidden_layers": 2, "num_local_experts": 9, "moe_intermediate_size": 21,
                  "decoder_sparse_step": 1, "attention_bias": True},
    "mistral": OTHER_HEADS,
    "qwen2": OTHER_HEADS,
    "qwen3": {**OTHER_HEADS, "attention_bias": True},
    "olmo2": {**OTHER_HEADS, "attention_bias": True},
    "deepseek-v2": {**OTHER_SIZES, **LATENT_SIZES},
    "deepseek-v3": {**OTHER_SIZES, **LATENT_SIZES, "num_nextn_predict_layers": 0},
    "mamba2": {"vocab_size": 321, "hidden_size": 80, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 16, "expand": 3,
               "state_size": 13, "n_groups": 1, "conv_kernel": 3},
    "granite": OTHER_HEADS,
    "granite-hybrid": {**OTHER_SIZES, **MIXER_SIZES, "mamba_n_groups": 2, "shared_intermediate_size": 29,
                       "num_local_experts": 9, "layer_types": ["mamba", "mamba", "attention"]},
    "bamba": {**OTHER_SIZES, **MIXER_SIZES, "mamba_n_groups": 3, "attn_layer_indices": [2]},
    "nemotron-h": {"vocab_size": 321, "hidden_size": 36, "intermediate_size": 57, "num_attention_heads": 2,
                   "num_key_value_heads": 3, "head_dim": 10, "mamba_num_heads": 9, "mamba_head_dim": 16,
                   "ssm_state_size": 11, "n_groups": 2, "conv_kernel": 3,
                   "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"]},
    "qwen3-next": {**OTHER_SIZES, "head_dim": 12, "linear_num_key_heads": 1, "linear_num_value_heads": 6,
                   "linear_key_head_dim": 9, "linear_value_head_dim": 13, "linear_conv_kernel_dim": 3, "num_experts": 9,
                   "moe_intermediate_size": 21, "shared_expert_intermediate_size": 25, "decoder_sparse_step": 2,
                   "mlp_only_layers": [], "layer_types": ["full_attention"] + ["linear_attention"] * 3},
}
# Of these any other value than the family's is refused by name.
MUST_BE = {
    "llama": {"hidden_act": "gelu", "attention_bias": 1, "mlp_bias": True, "attention_dropout": 0.1, "pretraining_tp": 2},
    "mistral": {"hidden_act": "gelu", "attention_dropout": 0.1, "use_sliding_window": True},
    "qwen2": {"hidden_act": "gelu", "attention_dropout": 0.1, "layer_types": ["full_attention", "sliding_attention"]},
    "qwen3": {"hidden_act": "gelu", "attention_dropout": 0.1, "layer_types": ["full_attention"]},
    "olmo2": {"hidden_act": "gelu", "attention_dropout": 0.1, "sliding_window": 9},
    "deepseek-v2": {"hidden_act": "gelu", "attention_dropout": 0.1, "attention_bias": True, "mlp_bias": True,
                    "output_router_logits": True, "pretraining_tp": 2, "topk_method": "noaux_tc",
                    "norm_topk_prob": True, "scoring_func": "sigmoid"},
    "mixtral": {"hidden_act": "gelu", "attention_dropout": 0.1, "output_router_logits": True,
                "router_jitter_noise": 0.1},
    "qwen3-moe": {"hidden_act": "gelu", "attention_dropout": 0.1,
                  "mlp_only_layers": [0], "output_router_logits": True},
    "deepseek-v3": {"hidden_act": "gelu", "attention_bias": True, "attention_dropout": 0.1, "output_router_logits": True,
                    "rope_interleave": False, "pretraining_tp": 2},
    "mamba2": {"hidden_act": "gelu", "use_bias": True, "use_conv_bias": False, "time_step_limit": [0.0, 1.0]},
    "granite": {"hidden_act": "gelu", "attention_bias": True, "mlp_bias": True, "attention_dropout": 0.1},
    "granite-hybrid": {"hidden_act": "gelu", "attention_bias": True, "attention_dropout": 0.1, "output_router_logits": True,
                       "mamba_conv_bias": False, "mamba_proj_bias": True, "time_step_limit": [0.0, 1.0],
                       "normalization_function": "layernorm", "position_embedding_type": "alibi"},
    "bamba": {"hidden_act": "gelu", "attention_bias": True, "mlp_bias": True, "attention_dropout": 0.1,
              "mamba_conv_bias": False, "mamba_proj_bias": True, "time_step_limit": [0.0, 1.0],
              "partial_rotary_factor": 0.25},
    "nemotron-h": {"mlp_hidden_act": "silu", "mamba_hidden_act": "gelu", "use_bias": True, "use_conv_bias": False,
                   "mamba_proj_bias": True, "mlp_bias": True, "attention_bias": True, "attention_dropout": 0.1,
                   "hidden_dropout": 0.1, "time_step_min": 0.01, "sliding_window": 9, "num_nextn_predict_layers": 1,
                   "output_router_logits": True},
    "qwen3-next": {"hidden_act": "gelu", "attention_dropout": 0.1, "attention_bias": True, "output_router_logits": True,
                   "sliding_window": 9, "layer_types": ["sliding_attention"] * 4, "mlp_only_layers": [4]},
}
# What these say does not change what given weights compute in training.
WITHOUT_MEANING = {"architectures", "model_type", "transformers_version", "dtype", "use_cache", "initializer_range",
                   "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "router_aux_loss_coef",
                   "rope_parameters", "rope_type", "qk_head_dim"}
OF_MIXERS = {"chunk_size", "residual_in_fp32", "rescale_prenorm_residual", "time_step_floor", "time_step_max",
             "time_step_rank"}
# Of nemotron_h too: of layers that it has not (experts), of generation, and what follows from others.
WITHOUT_MEANING_THERE = {
    "mamba2": OF_MIXERS | {"time_step_min"},
    "granitemoehybrid": {"mamba_chunk_size"},
    "bamba": {"mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient"},
    "nemotron_h": OF_MIXERS | {
        "expand", "time_step_limit", "mamba_ssm_cache_dtype", "use_mamba_kernels", "num_logits_to_keep", "moe_intermediate_size",
        "moe_latent_size", "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "mtp_layers_block_type",
        "n_group", "n_routed_experts", "n_shared_experts", "norm_topk_prob", "num_experts_per_tok", "routed_scaling_factor",
        "topk_group"},
}


def of_family(table, model_type):
    return {key for name, keys in table.items() if MODELS[name].model_type == model_type for key in keys}


@pytest.mark.parametrize("name", SIZES)
def test_the_tables_have_every_key_of_a_file(tmp_path, name):
    model_type = MODELS[name].model_type
    keys = WITHOUT_MEANING | WITHOUT_MEANING_THERE.get(model_type, set())
    for table in (CHANGED, SIZES, MUST_BE):
        keys |= of_family(table, model_type)
    for model, config in MODELS.items():
        if config.model_type == model_type:
            copy.deepcopy(config).save_pretrained(tmp_path / model)
            file = json.loads((tmp_path / model / "config.json").read_text())
            left = {*file, *file.get("rope_parameters", {})} - keys
            left -= {"head_dim"} if model_type.startswith("deepseek") else set()  # follows from the others
            left -= {"tie_word_embeddings"}  # of llama's decoder, which all have
            assert not left, model


@pytest.mark.parametrize("name", CHANGED)
def test_every_key_that_means_something_changes_the_loss(start, tmp_path, name):
    save(name, tmp_path / "model", spelling="newer")
    write_text(tmp_path / "text")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    if "layer_types" in CHANGED[name]:
        config.pop("layer_types")  # wins over the keys that it must agree with
    of_rope = {*config.get("rope_parameters", {}), "attention_factor", "truncate"}
    cluster = start(workers=1, slots=2)

    def write(folder, key, value):
        changed = json.loads(json.dumps(config))
        if key:
            (changed["rope_parameters"] if key in of_rope else changed)[key] = value
        (folder / "config.json").write_text(json.dumps(changed))

    jobs = {}  # two run at a time
    for key, value in {"": None, **CHANGED[name]}.items():
        folder = shutil.copytree(tmp_path / "model", tmp_path / f"model-{len(jobs)}")
        write(folder, key, value)
        jobs[key] = cluster.submit(job_from(f"job-{len(jobs)}", folder, tmp_path, 1, directory=str(folder / "saved")))
    losses = {}
    for key, job in jobs.items():
        cluster.wait_state(job, "SUCCEEDED", 240)
        wait_for("its report", lambda job=job: cluster.step(job) >= 1)
        losses[key] = cluster.reports(job)[0]["loss"]
    print(name, losses)
    for key in CHANGED[name]:
        assert abs(losses[key] - losses[""]) >= 1e-3, key
    spec = job_from("refused", tmp_path / "model", tmp_path, 1, directory=str(tmp_path / "refused"))
    for table, said in ((SIZES, ""), (MUST_BE, "is not allowed")):
        for key, value in table.get(name, {}).items():
            write(tmp_path / "model", key, value)
            refused = cluster.cli("submit", "-f", cluster.write(spec), check=False)
            assert refused.returncode == 4 and said in refused.stderr, (key, refused.stderr)
            assert said == "" or key in refused.stderr, refused.stderr


# transformers' name of a field → ours, where it is another.
OURS = {"num_local_experts": "num_experts", "n_routed_experts": "num_experts"}
FIELDS = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
          "num_key_value_heads", "head_dim", "max_position_embeddings", "initializer_range", "rms_norm_eps", "rope_theta",
          "tie_word_embeddings"]
EXPERTS = {"mixtral": ["num_local_experts", "num_experts_per_tok"],
           "qwen3_moe": ["num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step",
                         "norm_topk_prob"],
           "deepseek_v2": ["n_routed_experts", "moe_intermediate_size", "norm_topk_prob", "n_shared_experts",
                           "routed_scaling_factor", "first_k_dense_replace"],
           "deepseek_v3": ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
                           "n_shared_experts", "routed_scaling_factor", "n_group", "topk_group", "first_k_dense_replace"]}
MULTIPLIERS = ["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"]
LATENT = ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]
NULL_MEANS = {"head_dim", "num_key_value_heads", "q_lora_rank"}  # something, so it is not refused


def ours(model, key):
    """The value in a job's resolved model; None: there is none."""
    block = model
    if key in LATENT:
        block = model["latent_attention"]
    elif any(key in keys for keys in EXPERTS.values()):
        block = model["moe"]
    value = block.get(OURS.get(key, key))
    return float(value) if isinstance(value, str) else value


def theirs(config, key):
    if key == "rope_theta":
        return config.rope_parameters["rope_theta"]
    value = getattr(config, key, None)
    if key == "head_dim":
        return (config.qk_head_dim if config.model_type.startswith("deepseek")
                else value or config.hidden_size // config.num_attention_heads)
    return config.num_attention_heads if key == "num_key_value_heads" and value is None else value


# Ours of layers by a pattern → transformers'.
PAIRS = {key: key for key in ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings",
                              "initializer_range", "rms_norm_eps")}
PAIRS |= {f"mamba.{own}": their for own, their in (
    ("num_heads", "mamba_n_heads"), ("head_dim", "mamba_d_head"), ("state_size", "mamba_d_state"),
    ("n_groups", "mamba_n_groups"), ("conv_kernel", "mamba_d_conv"), ("chunk_size", "mamba_chunk_size"))}
MIXERS = {
    "granitemoehybrid": PAIRS | {"moe.num_experts": "num_local_experts", "moe.num_experts_per_tok": "num_experts_per_tok",
                                 "moe.moe_intermediate_size": "intermediate_size",
                                 "moe.shared_expert_intermediate_size": "shared_intermediate_size",
                                 "embedding_multiplier": "embedding_multiplier",
                                 "residual_multiplier": "residual_multiplier", "logits_scaling": "logits_scaling"},
    "bamba": PAIRS | {"intermediate_size": "intermediate_size"},
    "mamba2": {"vocab_size": "vocab_size", "hidden_size": "hidden_size", "num_hidden_layers": "num_hidden_layers",
               "initializer_range": "initializer_range", "rms_norm_eps": "layer_norm_epsilon", "mamba.num_heads": "num_heads",
               "mamba.head_dim": "head_dim", "mamba.state_size": "state_size", "mamba.n_groups": "n_groups",
               "mamba.conv_kernel": "conv_kernel", "mamba.chunk_size": "chunk_size"},
    "nemotron_h": {"vocab_size": "vocab_size", "hidden_size": "hidden_size", "intermediate_size": "intermediate_size",
                   "num_attention_heads": "num_attention_heads", "num_key_value_heads": "num_key_value_heads",
                   "head_dim": "head_dim", "max_position_embeddings": "max_position_embeddings",
                   "initializer_range": "initializer_range", "rms_norm_eps": "layer_norm_epsilon",
                   "mamba.num_heads": "mamba_num_heads", "mamba.head_dim": "mamba_head_dim",
                   "mamba.state_size": "ssm_state_size", "mamba.n_groups": "n_groups", "mamba.conv_kernel": "conv_kernel",
                   "mamba.chunk_size": "chunk_size"},
    "qwen3_next": {
        **{key: key for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                                "head_dim", "max_position_embeddings", "initializer_range", "rms_norm_eps")},
        **{f"moe.{key}": key for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
                                         "shared_expert_intermediate_size")},
        "gated_delta_net.num_key_heads": "linear_num_key_heads", "gated_delta_net.num_value_heads": "linear_num_value_heads",
        "gated_delta_net.key_head_dim": "linear_key_head_dim", "gated_delta_net.value_head_dim": "linear_value_head_dim",
        "gated_delta_net.conv_kernel": "linear_conv_kernel_dim"},
}


@pytest.mark.parametrize("name", ["mamba2", "nemotron-h", "granite-hybrid", "bamba", "qwen3-next"])
def test_defaults_of_mixers_are_those_of_transformers(start, tmp_path, name):
    model_type = MODELS[name].model_type
    layers = {"nemotron_h": {"layers_block_type": ["linear_attention", "full_attention", "mlp"]}}.get(model_type, {})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **layers}))
    cluster = start(workers=0)
    spec = tiny_job("job", ranks=1, sequence_length=8)
    spec["model"] = {"hugging_face": str(tmp_path)}
    spec["resources"] = {"device": "cpu"}
    spec["report"] = {"parameter_norms": False}  # of so many experts
    cluster.submit(spec)
    model = cluster.job("job")["resolved"]["model"]
    defaults = type(MODELS[name])()
    for own, their in MIXERS[model_type].items():
        block, _, key = own.rpartition(".")
        value = (model[block] if block else model)[key]
        assert float(value) == pytest.approx(float(getattr(defaults, their))), own
    if layers:
        assert model["hybrid_pattern"] == "M*-"
        # Of its own defaults one layer has experts.
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
        refused = cluster.cli("submit", "-f", cluster.write({**spec, "name": "other"}), check=False)
        assert refused.returncode == 4 and "E is no layer of model_type nemotron_h" in refused.stderr, refused.stderr
    elif model_type == "qwen3_next":
        assert model["hybrid_pattern"] == "[GE][GE][GE][*E]" * 12
        assert model["partial_rotary_factor"] == 0.25 and model["rope_theta"] == defaults.rope_parameters["rope_theta"]
    else:
        assert model["hybrid_pattern"] == {"mamba2": "M" * 64, "granitemoehybrid": "[ME]" * 32, "bamba": "[M-]" * 32}[model_type]


@pytest.mark.parametrize("name", [name for name in SIZES if MODELS[name].model_type not in MIXERS])
def test_defaults_are_those_of_transformers(start, tmp_path, name):
    model_type = MODELS[name].model_type
    keys = (FIELDS + EXPERTS.get(model_type, []) + (LATENT if model_type.startswith("deepseek") else []) +
            (MULTIPLIERS if model_type == "granite" else []))
    copy.deepcopy(MODELS[name]).save_pretrained(tmp_path / "model")
    file = json.loads((tmp_path / "model" / "config.json").read_text())
    file["rope_theta"] = file.pop("rope_parameters")["rope_theta"]
    cluster = start(workers=0)
    jobs = 0

    def read(config):
        nonlocal jobs
        jobs += 1
        (tmp_path / "model" / "config.json").write_text(json.dumps(config))
        spec = tiny_job(f"job-{jobs}", ranks=1, sequence_length=8)
        spec["model"] = {"hugging_face": str(tmp_path / "model")}
        submitted = cluster.cli("submit", "-f", cluster.write(spec), check=False)
        if submitted.returncode != 0:
            return submitted.stderr
        return cluster.job(spec["name"])["resolved"]["model"]

    # Without a default in transformers.
    silent = read({"model_type": model_type, **({"num_experts_per_tok": 2} if model_type == "deepseek_v2" else {})})
    defaults = type(MODELS[name])()
    assert not isinstance(silent, str), silent
    for key in keys:
        assert ours(silent, key) == pytest.approx(theirs(defaults, key)), key
    for key in keys:
        with_null = {**file, "hidden_size": 48, {"num_experts": "num_local_experts"}.get(key, key): None}
        found = read(with_null)
        if key in NULL_MEANS:
            assert not isinstance(found, str), found
            try:
                expected = theirs(type(MODELS[name]).from_dict(with_null), key)
            except huggingface_hub.errors.StrictDataclassError:  # of some, where transformers 4 reads it as of the others
                heads = with_null["num_attention_heads"]
                expected = with_null["hidden_size"] // heads if key == "head_dim" else heads
            assert ours(found, key) == (pytest.approx(expected) if expected is not None else None), key
        else:
            assert isinstance(found, str) and "null is not allowed" in found, key
    # Absent it is 4096, and null none; of Qwen's it counts with a switch, and from some layer on.
    if model_type == "mistral":
        assert silent["sliding_window"] == 4096 and silent["window_layers"] == "all"
        assert "sliding_window" not in read({**file, "hidden_size": 48, "sliding_window": None})
    else:
        assert "sliding_window" not in silent
    if model_type == "qwen3_moe":
        assert read({"model_type": model_type, "use_sliding_window": True})["sliding_window"] == 4096
    if model_type in ("qwen2", "qwen3"):
        switched = read({"model_type": model_type, "use_sliding_window": True})
        assert switched["sliding_window"] == 4096 and switched["window_layers"] == "28-31"
        assert "sliding_window" not in read({"model_type": model_type, "use_sliding_window": True, "sliding_window": None})
