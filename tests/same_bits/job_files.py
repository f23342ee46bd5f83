# SPDX-License-Identifier: Apache-2.0
"""The 60 job files of scripts/same_bits.sh: tiny models of which every two values of FACTORS that go together meet in
one job. The choice is a function of this file alone, so two builds run the same jobs."""
import itertools
import random

JOBS = 60
SPARSE = ("mixtral", "qwen3_moe", "deepseek_v3")

FACTORS = {
    "ranks": [1, 2, 3, 4],
    "strategy": ["replicate", "zero1", "zero2", "zero3", "hsdp", "hfsdp"],
    "model": ["llama", *SPARSE],
    "types": ["fp32", "fp64", "bf16", "bf16, sent as fp32", "bf16, its ends in fp32"],
    "expert": [1, 2, 4],
    "schedule": ["sequential", "separate", "overlap", "overlap, delayed"],
    "documents": ["stream", "packed"],
    "frozen": ["none", "embedding", "layers.1", "layers.1.experts", "head"],
    "tied": [False, True],
    "recompute": ["off", "layer", "attention", "mlp", "attention,mlp"],
    "accumulation": [1, 2, 3],
    "router": ["plain", "losses", "capacity", "padded", "global"],
    "rows": ["1.5", "1, fixed", "1, exact"],
    "gathers": ["0", "1", "2", "kept"],
}


def is_allowed(row):
    """Whether a job file may combine these values. `row` may lack factors: then whether some job may have them all."""
    def is_any(factor, *values):
        return factor not in row or row[factor] in values

    sparse = is_any("model", *SPARSE)
    if not is_any("expert", 1) and (not sparse or not is_any("ranks", *(n for n in (2, 3, 4) if n % row["expert"] == 0))):
        return False
    if not is_any("strategy", "replicate", "zero1", "zero2", "zero3"):  # two replicas, of shards of one rank or more
        if not is_any("ranks", 2, 4) or (row.get("expert", 1) * 2 > row.get("ranks", 4)):
            return False
    if not is_any("router", "plain") and not sparse or row.get("frozen") == "layers.1.experts" and not sparse:
        return False
    if row.get("frozen") in ("embedding", "head") and row.get("tied"):  # a shared matrix is frozen with both units
        return False
    if (row.get("schedule") == "separate" or row.get("rows", "1.5") != "1.5") and (
            not sparse or not is_any("expert", 2, 4) or not is_any("ranks", 2, 4)):
        return False
    if row.get("schedule") == "separate" or row.get("rows", "1.5") != "1.5":
        if row.get("strategy") in ("hsdp", "hfsdp") and not is_any("ranks", 4):
            return False
    if row.get("rows", "1.5") != "1.5" and row.get("router") == "padded":  # padded experts compute all rows at once
        return False
    if row.get("model") == "mixtral" and "mlp" in row.get("recompute", ""):  # its layers are all sparse
        return False
    return row.get("gathers") != "kept" or is_any("strategy", "zero3", "hsdp", "hfsdp")


def choose(jobs=JOBS, seed=1):
    """Rows, factor → value: each adds the most pairs of values that no row before it has."""
    numbers = random.Random(seed)
    names = list(FACTORS)

    def pairs_of(row):
        return {((a, row[a]), (b, row[b])) for a, b in itertools.combinations(names, 2)}

    missing = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in FACTORS[a] for y in FACTORS[b]
               if is_allowed({a: x, b: y})}
    rows = []
    while len(rows) < jobs:
        candidates = []
        targets = sorted(missing, key=repr)
        while len(candidates) < 60:
            row = dict(numbers.choice(targets)) if targets else {}
            for name in numbers.sample(names, len(names)):
                if name in row:
                    continue
                fitting = [value for value in FACTORS[name] if is_allowed({**row, name: value})]
                if not fitting:
                    break
                row[name] = numbers.choice(fitting)
            else:
                if is_allowed(row):
                    candidates.append(row)
        best = max(candidates, key=lambda row: len(pairs_of(row) & missing))
        missing -= pairs_of(best)
        rows.append({name: best[name] for name in names})
    return rows, missing


def title(row):
    return ", ".join(f"{name}: {value}" for name, value in row.items())


def precision_of(types):
    precision = {"compute": types.split(",")[0]}
    if types.endswith("sent as fp32"):
        precision["transport"] = "fp32"
    if types.endswith("ends in fp32"):
        precision |= {"embedding": {"compute": "fp32"}, "head": {"compute": "fp32"}}
    return precision


def model_of(row):
    model = {"model_type": row["model"], "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
             "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 256,
             "tie_word_embeddings": row["tied"]}
    if row["model"] not in SPARSE:
        return model
    moe = {"num_experts": 4, "num_experts_per_tok": 2}
    if row["model"] == "qwen3_moe":
        moe |= {"moe_intermediate_size": 24, "decoder_sparse_step": 2}  # layers.1 alone
    if row["model"] == "deepseek_v3":
        moe |= {"moe_intermediate_size": 24, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1}
        if row["router"] not in ("capacity", "padded"):
            moe |= {"router_bias_update_rate": 0.01}
        model |= {"num_key_value_heads": 2, "latent_attention": {
            "q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}}
        del model["head_dim"]
    if row["router"] != "plain":
        moe |= {"router_aux_loss_coef": 0.01, "router_z_loss_coef": 0.001}
    if row["router"] == "global":
        moe |= {"router_aux_loss_scope": "global"}
    if row["router"] in ("capacity", "padded"):
        moe |= {"capacity_factor": 1.0, "pad_to_capacity": row["router"] == "padded"}
    return model | {"moe": moe}


def parallelism_of(row):
    parallelism = {"ranks": row["ranks"], "expert": row["expert"],
                   "schedule": "overlap" if row["schedule"].startswith("overlap") else "sequential",
                   "fsdp": {"strategy": row["strategy"], "prefetch": 1 if row["gathers"] == "kept" else int(row["gathers"]),
                            "keep_gathered": "all" if row["gathers"] == "kept" else "none"}}
    if row["strategy"] in ("hsdp", "hfsdp"):
        parallelism["replicas"] = 2
    if row["schedule"] == "overlap, delayed":
        parallelism["overlap"] = {"delay_weight_gradients": True}
    dispatch = {}
    if row["schedule"] == "separate":
        dispatch["separate_weight_gradients"] = True
    if row["rows"] != "1.5":  # further passes
        dispatch |= {"rows_at_a_time": 1, "chunks": row["rows"].split()[1]}
    return parallelism | ({"dispatch": dispatch} if dispatch else {})


def job(row, name, text, directory, steps, resume=None, device="cpu"):
    """One run of the job. `steps`: the last one, which is saved; `resume`: a checkpoint to go on from."""
    spec = {
        "name": name,
        "model": model_of(row),
        "data": {"train": str(text), "tokenizer": "bytes", "documents": row["documents"]},
        "training": {"steps": steps, "sequence_length": 32, "micro_batch_size": 2,
                     "global_batch_size": 2 * row["accumulation"] * row["ranks"], "seed": 7, "validate_every_steps": 3,
                     "validation_batches": 3, "frozen": row["frozen"], "recompute": row["recompute"],
                     "optimizer": {"name": "adamw", "learning_rate": 1e-3}},
        "parallelism": parallelism_of(row),
        "precision": precision_of(row["types"]),
        "checkpoint": {"directory": str(directory)},
        "report": {"parameter_norms": True},
        "resources": {"device": device},
    }
    if row["documents"] == "packed":
        spec["data"]["end_of_document"] = 0
    if resume is not None:
        spec["checkpoint"]["resume"] = str(resume)
    return spec
