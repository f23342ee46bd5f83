# SPDX-License-Identifier: Apache-2.0
"""The loss and every gradient of one step are those of Hugging Face's `transformers` on the same weights and tokens.

A job whose text is exactly the windows of one step, whose learning rate moves no weight, and whose first moment is the
gradient itself (beta1 0, no clipping): its checkpoint has weights and gradients, whatever the order of the windows.
"""
import json
import random

import numpy
import pytest
import torch
import transformers

from cluster import tiny_job, wait_for

LENGTH = 24
SEQUENCES = 8
SEED = 20
TOLERANCE = 1e-5  # of fp32, relative to the loss, and to the norm of a gradient

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 256, "max_position_embeddings": 64, "initializer_range": 0.2, "bos_token_id": 1,
         "eos_token_id": 2}
MODELS = {
    "llama": transformers.LlamaConfig(num_hidden_layers=2, tie_word_embeddings=True, **SIZES),
    "mixtral": transformers.MixtralConfig(num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, **SIZES),
    "qwen3-moe": transformers.Qwen3MoeConfig(num_hidden_layers=3, num_experts=8, num_experts_per_tok=3, head_dim=12,
                                             moe_intermediate_size=20, norm_topk_prob=True, decoder_sparse_step=2,
                                             **SIZES),
    "qwen3-moe-unnormalised": transformers.Qwen3MoeConfig(num_hidden_layers=2, num_experts=16, num_experts_per_tok=1,
                                                          moe_intermediate_size=12, norm_topk_prob=False, **SIZES),
    "deepseek-v3": transformers.DeepseekV3Config(num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=8,
                                                 n_shared_experts=2, num_experts_per_tok=4, n_group=4, topk_group=2,
                                                 moe_intermediate_size=20, q_lora_rank=12, kv_lora_rank=10,
                                                 qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8,
                                                 routed_scaling_factor=2.5, num_nextn_predict_layers=0,
                                                 **{**SIZES, "num_key_value_heads": 4}),
    "deepseek-v3-plain": transformers.DeepseekV3Config(num_hidden_layers=2, first_k_dense_replace=0,
                                                       n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2,
                                                       n_group=1, topk_group=1, norm_topk_prob=False,
                                                       moe_intermediate_size=12, q_lora_rank=None, kv_lora_rank=16,
                                                       qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=12,
                                                       routed_scaling_factor=1.0, num_nextn_predict_layers=0,
                                                       **{**SIZES, "num_key_value_heads": 4}),
}


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


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_those_of_transformers(start, tmp_path, name):
    config = MODELS[name]
    config.save_pretrained(tmp_path / "model")
    architecture = type(transformers.AutoModelForCausalLM.from_config(config)).__name__
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "architectures": [architecture]}))
    engine = random.Random(SEED)
    windows = [[engine.randrange(256) for _ in range(LENGTH + 1)] for _ in range(SEQUENCES)]
    (tmp_path / "text").write_bytes(bytes(token for window in windows for token in window))

    spec = tiny_job(name, ranks=2, steps=1, directory=tmp_path / "saved", clip_grad_norm=0,
                    sequence_length=LENGTH, micro_batch_size=2, global_batch_size=SEQUENCES)
    spec["training"]["optimizer"] = {"learning_rate": 1e-30, "beta1": 0, "weight_decay": 0}
    spec["model"] = {"hugging_face": str(tmp_path / "model")}
    spec["data"] = {"train": str(tmp_path / "text"), "validation_fraction": 0}
    cluster = start(workers=2)
    cluster.submit(spec)
    cluster.wait_state(name, "SUCCEEDED", 120)
    wait_for("its report", lambda: cluster.step(name) >= 1)
    loss = cluster.reports(name)[0]["loss"]
    ours = arrays_of(tmp_path / "saved" / "step-1")

    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    theirs = checkpoint_names(model, config)
    assert set(theirs) == {array for array in ours if "/" not in array}
    for array, (weight, _) in theirs.items():
        weight.copy_(ours[array].view(weight.shape))
    tokens = torch.tensor(windows)
    expected = model(input_ids=tokens, labels=tokens).loss
    expected.backward()
    theirs = checkpoint_names(model, config)
    assert loss == pytest.approx(expected.item(), rel=TOLERANCE)
    worst = 0.0
    for array, (_, gradient) in theirs.items():
        difference = (ours[f"{array}/exp_avg"].view(gradient.shape) - gradient).norm().item()
        assert difference <= TOLERANCE * gradient.norm().item(), array
        worst = max(worst, difference / gradient.norm().item() if gradient.any() else 0)  # no token, no gradient
    print(f"{name}: loss {loss}, transformers' {expected.item()}, gradients within {worst:.1e}")


def test_learning_rates_are_those_of_transformers(start):
    """Every step's rate from the end of the warm-up, of the decays that transformers has too."""
    steps, warmup, rate = 20, 4, 1e-3
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=rate)
    schedules = {
        "linear": ({"decay": "linear"},
                   transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)),
        "wsd": ({"decay": "wsd", "decay_steps": 6, "min_learning_rate": 1e-4},
                transformers.get_wsd_schedule(optimizer, warmup, 6, num_training_steps=steps, decay_type="linear",
                                              min_lr_ratio=0.1)),
        "wsd-sqrt": ({"decay": "wsd", "decay_steps": 6, "decay_shape": "sqrt"},
                     transformers.get_wsd_schedule(optimizer, warmup, 6, num_training_steps=steps,
                                                   decay_type="1-sqrt")),
        "inverse-sqrt": ({"decay": "inverse_sqrt"}, transformers.get_inverse_sqrt_schedule(optimizer, warmup)),
    }
    cluster = start(workers=1)
    for name, (schedule, _) in schedules.items():
        spec = tiny_job(name, ranks=1, steps=steps, validate_every_steps=0)
        spec["training"]["optimizer"] = {"learning_rate": rate}
        spec["training"]["schedule"] = {"warmup_steps": warmup, **schedule}
        cluster.submit(spec)
    for name, (_, theirs) in schedules.items():
        cluster.wait_state(name, "SUCCEEDED", 120)
        wait_for("its reports", lambda name=name: cluster.step(name) >= steps)
        ours = [report["learning_rate"] for report in cluster.reports(name)]
        expected = [rate * theirs.lr_lambdas[0](step) for step in range(warmup, steps + 1)]
        assert ours[warmup - 1:] == pytest.approx(expected, rel=1e-12, abs=1e-18), name
