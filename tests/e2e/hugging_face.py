# SPDX-License-Identifier: Apache-2.0
"""Folders of small models as users have them, made with `transformers` and `tokenizers`.

The weights are large, the norms are not 1 and the router's biases not 0, so that what is left out shows.
"""
import copy
import json
import random

import numpy
import safetensors.torch
import tokenizers
import torch
import transformers

from cluster import tiny_job

LENGTH = 48  # four times what rotary embeddings are scaled from
SEQUENCES = 8
SEED = 21
END = 17  # of a document

# transformers refuses Llamas whose heads do not divide the hidden size.
SIZES = {"hidden_size": 48, "intermediate_size": 56, "num_attention_heads": 3, "num_key_value_heads": 1,
         "vocab_size": 320, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2}
TOKENS = {"vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2}
UNEVEN = {**SIZES, "hidden_size": 40}
# beta_fast and beta_slow are such that dims lie between them: a short text turns few of 12.
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12, "beta_fast": 0.5, "beta_slow": 0.1}
ROPE = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 12},
    "yarn": YARN,
    "yarn-mscale": {**YARN, "mscale": 1.5, "mscale_all_dim": 0.5, "truncate": False},
}
MULTIPLIERS = {"embedding_multiplier": 3.0, "attention_multiplier": 0.4, "residual_multiplier": 0.6, "logits_scaling": 2.5}
LATENT = {**UNEVEN, "num_key_value_heads": 3, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "v_head_dim": 8,
          "moe_intermediate_size": 20}
MODELS = {
    "llama": transformers.LlamaConfig(num_hidden_layers=3, head_dim=12, rope_theta=500.0, rms_norm_eps=1e-4, **SIZES),
    "llama-tied": transformers.LlamaConfig(num_hidden_layers=2, head_dim=8, tie_word_embeddings=True, **SIZES),
    "llama-biased": transformers.LlamaConfig(num_hidden_layers=2, head_dim=12, attention_bias=True, rope_theta=300.0, **SIZES),
    "mixtral": transformers.MixtralConfig(num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2,
                                          rope_theta=300.0, head_dim=12, **UNEVEN),
    "qwen3-moe": transformers.Qwen3MoeConfig(num_hidden_layers=3, num_experts=8, num_experts_per_tok=3, head_dim=12,
                                             moe_intermediate_size=20, norm_topk_prob=True, decoder_sparse_step=2,
                                             rope_theta=300.0, **UNEVEN),
    "deepseek-v3": transformers.DeepseekV3Config(num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=8,
                                                 n_shared_experts=2, num_experts_per_tok=4, n_group=4, topk_group=2,
                                                 routed_scaling_factor=2.5, q_lora_rank=12, qk_rope_head_dim=4,
                                                 rope_theta=300.0, **LATENT),
    "deepseek-v3-yarn": transformers.DeepseekV3Config(num_hidden_layers=2, first_k_dense_replace=0, n_routed_experts=6,
                                                      n_shared_experts=1, num_experts_per_tok=3, n_group=1,
                                                      topk_group=1, q_lora_rank=None, qk_rope_head_dim=16,
                                                      norm_topk_prob=False, rope_theta=1000.0, rope_scaling=dict(ROPE["yarn-mscale"]),
                                                      **{**LATENT, "qk_nope_head_dim": 2}),
    "deepseek-v2": transformers.DeepseekV2Config(num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=8,
                                                 n_shared_experts=2, num_experts_per_tok=3, q_lora_rank=None,
                                                 routed_scaling_factor=1.5, qk_rope_head_dim=16, rope_theta=1000.0,
                                                 rope_scaling=dict(ROPE["yarn-mscale"]),
                                                 **{**LATENT, "hidden_size": 48, "qk_nope_head_dim": 2}),
    "deepseek-v2-plain": transformers.DeepseekV2Config(num_hidden_layers=2, first_k_dense_replace=0, n_routed_experts=6,
                                                       n_shared_experts=1, num_experts_per_tok=2, q_lora_rank=12,
                                                       qk_rope_head_dim=4, rope_theta=300.0,
                                                       **{**LATENT, "hidden_size": 48}),
    "deepseek-v2-groups": transformers.DeepseekV2Config(num_hidden_layers=2, first_k_dense_replace=0, n_routed_experts=12,
                                                        n_shared_experts=1, num_experts_per_tok=4, n_group=4,
                                                        topk_group=2, topk_method="group_limited_greedy",
                                                        routed_scaling_factor=2.5, q_lora_rank=12, qk_rope_head_dim=4,
                                                        rope_theta=300.0, **{**LATENT, "hidden_size": 48}),
    "qwen2": transformers.Qwen2Config(num_hidden_layers=2, tie_word_embeddings=True, rope_theta=300.0, **SIZES),
    "qwen2-window": transformers.Qwen2Config(num_hidden_layers=3, use_sliding_window=True, sliding_window=13,
                                             max_window_layers=1, rope_theta=300.0, **SIZES),
    "qwen3": transformers.Qwen3Config(num_hidden_layers=2, head_dim=12, rope_theta=300.0, **UNEVEN),
    "qwen3-biased": transformers.Qwen3Config(num_hidden_layers=2, head_dim=12, attention_bias=True, rope_theta=300.0, **UNEVEN),
    "qwen3-tied": transformers.Qwen3Config(num_hidden_layers=2, head_dim=12, tie_word_embeddings=True, **UNEVEN),
    "qwen3-window": transformers.Qwen3Config(num_hidden_layers=2, head_dim=12, use_sliding_window=True, sliding_window=9,
                                             layer_types=["sliding_attention", "full_attention"], max_window_layers=1,
                                             rope_theta=300.0, **UNEVEN),
    "qwen3-moe-window": transformers.Qwen3MoeConfig(num_hidden_layers=2, num_experts=4, num_experts_per_tok=2, head_dim=12,
                                                    moe_intermediate_size=20, norm_topk_prob=True, rope_theta=300.0,
                                                    use_sliding_window=True, sliding_window=9, **UNEVEN),
    "qwen3-moe-biased": transformers.Qwen3MoeConfig(num_hidden_layers=2, num_experts=4, num_experts_per_tok=1, head_dim=12,
                                                    moe_intermediate_size=20, norm_topk_prob=False, attention_bias=True,
                                                    rope_theta=300.0, **UNEVEN),
    "mistral": transformers.MistralConfig(num_hidden_layers=2, head_dim=12, sliding_window=13, rope_theta=300.0, **UNEVEN),
    "mistral-whole": transformers.MistralConfig(num_hidden_layers=2, sliding_window=None, **SIZES),
    "olmo2": transformers.Olmo2Config(num_hidden_layers=2, rope_theta=300.0, **SIZES),
    "olmo2-biased": transformers.Olmo2Config(num_hidden_layers=2, attention_bias=True, rope_theta=300.0, **SIZES),
    "mamba2": transformers.Mamba2Config(num_hidden_layers=2, hidden_size=40, num_heads=10, head_dim=8, n_groups=2,
                                        state_size=12, chunk_size=20, **TOKENS),
    "mamba2-tied": transformers.Mamba2Config(num_hidden_layers=2, hidden_size=40, num_heads=5, head_dim=16, n_groups=1,
                                             state_size=8, chunk_size=64, tie_word_embeddings=True, **TOKENS),
    "granite": transformers.GraniteConfig(num_hidden_layers=2, rope_theta=300.0, **MULTIPLIERS, **SIZES),
    "granite-hybrid": transformers.GraniteMoeHybridConfig(
        num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], num_local_experts=8,
        num_experts_per_tok=3, shared_intermediate_size=28, position_embedding_type="rope", rope_theta=300.0,
        mamba_n_heads=12, mamba_d_head=8, mamba_n_groups=3, mamba_d_state=10, mamba_chunk_size=16,
        tie_word_embeddings=True, rms_norm_eps=5e-4, **MULTIPLIERS, **SIZES),
    "granite-hybrid-dense": transformers.GraniteMoeHybridConfig(
        num_hidden_layers=2, layer_types=["full_attention", "linear_attention"], num_local_experts=0,
        shared_intermediate_size=60, mamba_n_heads=6, mamba_d_head=16, mamba_d_state=12, mamba_chunk_size=64,
        **MULTIPLIERS, **SIZES),
    # Without a padding token, whose row transformers does not train.
    "bamba": transformers.BambaConfig(
        num_hidden_layers=3, attn_layer_indices=[1], rope_theta=300.0, mamba_n_heads=12, mamba_d_head=8, mamba_n_groups=2,
        mamba_d_state=10, mamba_chunk_size=16, pad_token_id=None, **SIZES),
    "nemotron-h": transformers.NemotronHConfig(
        layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"], head_dim=12,
        mamba_num_heads=6, mamba_head_dim=8, n_groups=3, ssm_state_size=10, chunk_size=16, **UNEVEN),
    "qwen3-next": transformers.Qwen3NextConfig(
        num_hidden_layers=4, full_attention_interval=2, mlp_only_layers=[1], head_dim=16, partial_rotary_factor=0.25,
        rope_theta=300.0, rms_norm_eps=1e-3, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
        num_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, shared_expert_intermediate_size=24, **UNEVEN),
}
for kind, scaling in ROPE.items():
    MODELS[f"llama-{kind}"] = transformers.LlamaConfig(num_hidden_layers=2, head_dim=12, rope_scaling=dict(scaling),
                                                       rope_theta=1000.0, **SIZES)
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PREDICTING = {"deepseek-v3": "model.layers.3.", "qwen3-next": "mtp."}  # of a layer that predicts further tokens


def make_model(name, dtype="fp32"):
    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(MODELS[name]), attn_implementation="eager")
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            norm = "norm" in parameter_name
            next_one = MODELS[name].model_type == "qwen3_next"
            if next_one and norm and "linear_attn.norm" not in parameter_name:
                parameter.copy_(0.3 * (2 * torch.rand_like(parameter) - 1))  # 1 is added to these
            elif norm or parameter_name.endswith(".bias"):
                parameter.copy_(int(norm) + 0.3 * (2 * torch.rand_like(parameter) - 1))
            else:
                # Of Qwen3-Next less: a rounding of larger weights changes gradients by more than 1e-5.
                size = 0.1 if next_one and "proj" in parameter_name else 0.2
                parameter.copy_(size * torch.randn_like(parameter))
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.copy_(0.3 * (2 * torch.rand_like(buffer) - 1))
    return model.to(TYPES[dtype])


def stored(folder):
    """All tensors of a folder, by name."""
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        found.update(safetensors.torch.load_file(file))
    return found


def arrays_of(step):
    """The arrays of a checkpoint, put together from its ranks' pieces."""
    manifest = json.loads((step / "manifest.json").read_text())
    files = {}
    for index, file in enumerate(manifest["files"]):
        content = (step / file["name"]).read_bytes()
        size = int.from_bytes(content[:8], "little")
        files[index] = json.loads(content[8:8 + size]), content[8 + size:]
    arrays = {}
    for array in manifest["arrays"]:
        assert array["dtype"] == "F32"
        name = array["name"] + ("" if array["kind"] in ("weight", "state") else "/" + array["kind"])
        parts = []
        for piece in array["pieces"]:  # of the whole array, no slices of it
            header, content = files[piece["file"]]
            begin, end = header[name]["data_offsets"]
            parts.append(numpy.frombuffer(content[begin:end], dtype="<f4"))
        arrays[name] = torch.from_numpy(numpy.concatenate(parts))
        assert arrays[name].numel() == numpy.prod(array["shape"])
    return arrays


def checkpoint_names(model, config):
    """Views of the model's parameters and gradients, by the names that its checkpoints use."""
    mixtral = config.model_type == "mixtral"
    nemotron = config.model_type == "nemotron_h"  # whose files have another prefix
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    found = {}
    for name, parameter in model.named_parameters():
        block = name.replace(".mlp.", ".block_sparse_moe.") if mixtral else name
        block = block.replace("model.", "backbone.", 1) if nemotron else block
        if config.model_type == "granitemoehybrid" and name.endswith(".router.weight"):
            block = block.replace(".router.", ".router.layer.")
        if name.endswith(".shared_mlp.input_linear.weight"):
            for half, own in ((0, gate), (1, up)):
                found[block.replace("input_linear", own)] = [t.chunk(2)[half] for t in (parameter.data, parameter.grad)]
        elif name.endswith(".experts.gate_up_proj"):
            for expert in range(parameter.shape[0]):
                prefix = block.removesuffix("gate_up_proj") + f"{expert}."
                for half, own in ((0, gate), (1, up)):
                    found[f"{prefix}{own}.weight"] = [t[expert].chunk(2)[half] for t in (parameter.data, parameter.grad)]
        elif name.endswith(".experts.down_proj"):
            for expert in range(parameter.shape[0]):
                prefix = block.removesuffix("down_proj") + f"{expert}."
                found[f"{prefix}{down}.weight"] = [parameter.data[expert], parameter.grad[expert]]
        else:
            found[block] = [parameter.data, parameter.grad]
    return found


def published(config):
    """A config.json in the spelling of the files on the hub, of transformers 4."""
    config = dict(config)
    rope = config.pop("rope_parameters", None)
    if rope is not None:
        config["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type")
        config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    config["torch_dtype"] = config.pop("dtype")
    if config["model_type"] == "granitemoehybrid":
        old = {"linear_attention": "mamba", "full_attention": "attention"}
        config["layer_types"] = [old[layer] for layer in config["layer_types"]]
        config.update({"normalization_function": "rmsnorm", "init_method": "mup"})
        config["position_embedding_type"] = config["position_embedding_type"] or "nope"
    if config["model_type"] == "bamba":
        config.update({"rope_scaling": None, "partial_rotary_factor": 0.5, "mamba_d_head": "auto"})
    config["transformers_version"] = "4.46.0"
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
        config["max_window_layers"] = 48
        if not config["use_sliding_window"]:
            config["sliding_window"] = 4096
    if config["model_type"] == "qwen2":
        config.pop("layer_types")  # max_window_layers says the same
        config["use_mrope"] = False
    if config["model_type"] in ("qwen2", "qwen3") and not config["use_sliding_window"]:
        config.pop("layer_types", None)
        config["sliding_window"] = 4096
    if "time_step_limit" in config:
        config["time_step_limit"][1] = float("inf")  # json writes Infinity
    if config["model_type"] == "nemotron_h":
        letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
        config["hybrid_override_pattern"] = "".join(letters[layer] for layer in config.pop("layers_block_type"))
        config["attention_head_dim"] = config["head_dim"]
    if config["model_type"] == "qwen3_next":
        config.pop("layer_types")
        config.update({"full_attention_interval": 2, "use_sliding_window": False})
    if config["model_type"] == "deepseek_v2":
        if config["topk_method"] == "greedy":
            config.update({"n_group": 1, "topk_group": 1})
        config.update({"scoring_func": "softmax", "moe_layer_freq": 1, "ep_size": 1,
                       "aux_loss_alpha": 0.001, "seq_aux": True, "auto_map": {"AutoConfig": "configuration_deepseek.A"}})
    if config["model_type"] == "deepseek_v3":
        config.update({"scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1, "ep_size": 1,
                       "aux_loss_alpha": 0.001, "seq_aux": True, "auto_map": {"AutoConfig": "configuration_deepseek.A"}})
        config.pop("rope_interleave")
    return config


def save(name, folder, dtype="fp32", spelling="published", fused=False, tokenizer="bytes"):
    """Saves the model in shards, with a tokenizer; and of some a layer that predicts further tokens. The model."""
    model = make_model(name, dtype)
    model.save_pretrained(folder, max_shard_size="60KB", save_original_format=not fused)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(published(config) if spelling == "published" else config))
    if name in PREDICTING:
        layer = PREDICTING[name]
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        tensors = {layer + "eh_proj.weight": torch.ones(40, 80), layer + "mlp.gate.e_score_correction_bias": torch.ones(8)}
        safetensors.torch.save_file(tensors, folder / "model-predicting.safetensors", metadata={"format": "pt"})
        index["weight_map"].update(dict.fromkeys(tensors, "model-predicting.safetensors"))
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    {"bytes": byte_level_bpe, "sentencepiece": sentencepiece_bpe}[tokenizer](folder)
    return model


TEXT = ["the weights of a model, and the text of a model"] * 20


def byte_level_bpe(folder):
    """As Llama 3's and Qwen's."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=320, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXT, trainer)
    save_tokenizer(tokenizer, folder, "PreTrainedTokenizerFast")


def sentencepiece_bpe(folder):
    """As Llama 2's and Mixtral's: spaces are letters, and bytes stand in for what is no piece."""
    spaces = tokenizers.normalizers.Sequence([tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")])
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.normalizer = spaces
    trained.train_from_iterator(TEXT, tokenizers.trainers.BpeTrainer(vocab_size=58, show_progress=False))
    learnt = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)),
              *sorted(learnt["vocab"], key=learnt["vocab"].get)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(
        {piece: number for number, piece in enumerate(pieces)}, [tuple(merge) for merge in learnt["merges"]],
        unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = spaces
    tokenizer.decoder = tokenizers.decoders.Sequence([
        tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse(),
        tokenizers.decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    save_tokenizer(tokenizer, folder, "LlamaTokenizer")


def save_tokenizer(tokenizer, folder, tokenizer_class):
    assert tokenizer.get_vocab_size() <= 320
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class, "bos_token": "<s>",
                                                              "eos_token": "</s>", "unk_token": "<unk>"}))


def write_text(path, sequences=SEQUENCES):
    """The windows of one step, with documents that end within them."""
    engine = random.Random(SEED)
    windows = [[END if engine.random() < 0.06 else engine.randrange(256) for _ in range(LENGTH + 1)]
               for _ in range(sequences)]
    path.write_bytes(bytes(token for window in windows for token in window))
    return torch.tensor(windows)


def inputs(tokens, packed, config=None):
    """What transformers' models take: with packed documents, a mask of what a token of another one may not see, and then
    of what a sliding window hides, of each kind of layer where there are several."""
    if not packed:
        return {"input_ids": tokens}
    documents = torch.cumsum(tokens == END, 1) - (tokens == END).long()
    seen = (documents[:, :, None] == documents[:, None, :]).tril()
    mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]
    window = getattr(config, "sliding_window", None)
    if window is None:
        return {"input_ids": tokens, "attention_mask": mask}
    near = torch.where(seen & torch.ones_like(seen).triu(1 - window), 0.0, torch.finfo(torch.float32).min)[:, None]
    several = getattr(config, "layer_types", None) is not None
    return {"input_ids": tokens,
            "attention_mask": {"full_attention": mask, "sliding_attention": near} if several else near}


def job_from(name, folder, tmp_path, ranks, packed=False, sequences=SEQUENCES, **checkpoint):
    """A job on exactly the text's windows whose learning rate moves no weight, and whose first moment is the gradient."""
    spec = tiny_job(name, ranks=ranks, steps=1, directory=tmp_path / "saved", clip_grad_norm=0, sequence_length=LENGTH,
                    micro_batch_size=2, global_batch_size=sequences)
    spec["training"]["optimizer"] = {"learning_rate": 1e-30, "beta1": 0, "weight_decay": 0}
    spec["model"] = {"hugging_face": str(folder)}
    spec["data"] = {"train": str(tmp_path / "text"), "validation_fraction": 0,
                    **({"documents": "packed", "end_of_document": END} if packed else {})}
    spec["checkpoint"].update({"start_from": str(folder), **checkpoint})
    config = folder / "config.json"  # a step of a checkpoint has none
    model_type = json.loads(config.read_text())["model_type"] if config.exists() else ""
    if model_type in ("mamba2", "nemotron_h", "granitemoehybrid", "bamba"):
        spec["resources"] = {"device": "cpu"}
    if model_type == "qwen3_next":
        spec["model"]["gated_delta_net"] = {"chunk_size": 20}  # divides no sequence
    if model_type == "deepseek_v3":
        spec["model"]["moe"] = {"router_bias_update_rate": 1e-30}  # it has biases, which are read
    return spec
