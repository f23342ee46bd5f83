#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one Llama from the same weights on the same batches twice, with PyTorch FSDP2 and with Tandem, and compares the
losses of every step. How far PyTorch is from itself, with the attention of cuDNN and with flash attention, is the yardstick.

  same_curve.py make FOLDER [--small [--compute fp64]]     text of Debian packages, a BPE trained on it, its tokens
  same_curve.py weights FOLDER                 a Hugging Face folder of random weights for each seed
  same_curve.py tandem FOLDER --seed S         trains by `tandem run`
  same_curve.py torch FOLDER --seed S --attention cudnn|flash|math
  same_curve.py compare FOLDER [--figure FILE.svg]

The model has 101 M parameters and trains in bf16 on one GPU, with FSDP2; with --small it has 10 M and trains in fp32
or fp64 on the CPU, without. `make` needs transformers (scripts/setup.sh --transformers --data), the figure needs matplotlib.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = (1, 2, 3)
TEXT = {"perl-modules-5.36": ("/usr/share/perl/5.36.0", ("*.pm", "*.pl", "*.pod")),
        "libpython3.11-stdlib": ("/usr/lib/python3.11", ("*.py",)),
        "libstdc++-12-dev": ("/usr/include/c++/12", ("*",)),
        "linux-libc-dev": ("/usr/include/linux", ("*.h",))}
LARGE = {"vocab": 16384, "hidden": 768, "inner": 2048, "layers": 12, "heads": 12, "kv_heads": 4, "length": 1024, "steps": 300,
         "micro_batch": 16, "batch": 64, "rate": 1e-3, "warmup": 30, "compute": "bf16", "device": "cuda"}
SMALL = {"vocab": 4096, "hidden": 320, "inner": 864, "layers": 6, "heads": 5, "kv_heads": 5, "length": 256, "steps": 100,
         "micro_batch": 4, "batch": 8, "rate": 3e-4, "warmup": 20, "compute": "fp32", "device": "cpu"}
BETAS, EPSILON, DECAY, CLIP, THETA, NORM_EPSILON = (0.9, 0.95), 1e-8, 0.1, 1.0, 10000.0, 1e-5

JOB = """name: curve
model: {{hugging_face: {folder}/weights-{seed}/config.json}}
data: {{train: {folder}/tokens, validation_fraction: 0}}
training:
  steps: {steps}
  sequence_length: {length}
  micro_batch_size: {micro_batch}
  global_batch_size: {batch}
  seed: {seed}
  validate_every_steps: 0
  clip_grad_norm: 1
  optimizer: {{name: adamw, learning_rate: {rate}, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1}}
  schedule: {{warmup_steps: {warmup}, decay: cosine}}
parallelism: {{ranks: 1, fsdp: {{strategy: zero3}}}}
precision: {{compute: {compute}}}
resources: {{device: {device}}}
checkpoint: {{directory: {folder}/tandem-{seed}, start_from: {folder}/weights-{seed}}}
"""


def shape_of(folder):
    return json.loads((folder / "shape.json").read_text())


def make(folder, shape, bin_dir):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    import transformers
    folder.mkdir(parents=True)
    (folder / "shape.json").write_text(json.dumps(shape))
    texts = []
    for package, (root, patterns) in TEXT.items():
        files = sorted({path for pattern in patterns for path in pathlib.Path(root).rglob(pattern)})
        contents = [path.read_text(encoding="utf-8", errors="ignore") for path in files if path.is_file() and not path.is_symlink()]
        print(f"{package}: {len(contents)} files, {sum(map(len, contents)) / 1e6:.1f} MB")
        texts += [content for content in contents if content]
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as file:
        for content in texts:
            file.write(json.dumps({"text": content}) + "\n")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=shape["vocab"], special_tokens=["<|endoftext|>"], show_progress=False,
                                                       initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>").save_pretrained(folder / "tokenizer")
    subprocess.run([bin_dir / "tandem", "data", "prepare", folder / "corpus.jsonl", "--tokenizer", folder / "tokenizer",
                    "--out", folder / "tokens"], check=True)


def weights(folder):
    """Weights as transformers begins: normal with a standard deviation of 0.02, norms 1."""
    import safetensors.torch
    import torch
    shape = shape_of(folder)
    for seed in SEEDS:
        target = folder / f"weights-{seed}"
        target.mkdir()
        (target / "config.json").write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": shape["vocab"], "hidden_size": shape["hidden"],
            "intermediate_size": shape["inner"], "num_hidden_layers": shape["layers"], "num_attention_heads": shape["heads"],
            "num_key_value_heads": shape["kv_heads"], "rms_norm_eps": NORM_EPSILON, "rope_theta": THETA, "hidden_act": "silu",
            "max_position_embeddings": shape["length"], "tie_word_embeddings": False, "torch_dtype": "float32"}))
        generator = torch.Generator().manual_seed(seed)
        model = llama(shape, "math")
        tensors = {name: torch.ones_like(p) if p.dim() == 1 else torch.randn(p.shape, generator=generator) * 0.02
                   for name, p in model.named_parameters()}
        safetensors.torch.save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})


def llama(shape, attention):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}[attention]
    hidden, heads, kv_heads = shape["hidden"], shape["heads"], shape["kv_heads"]
    dim = hidden // heads

    def rotated(x, cos, sin):
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.o_proj = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
            self.k_proj, self.v_proj = (nn.Linear(hidden, kv_heads * dim, bias=False) for _ in range(2))

        def forward(self, x, cos, sin):
            q, k, v = (p(x).unflatten(-1, (-1, dim)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
            q, k = rotated(q, cos, sin), rotated(k, cos, sin)
            k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
            with sdpa_kernel(backend):
                return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_proj, self.up_proj = (nn.Linear(hidden, shape["inner"], bias=False) for _ in range(2))
            self.down_proj = nn.Linear(shape["inner"], hidden, bias=False)

        def forward(self, x):
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(hidden, NORM_EPSILON) for _ in range(2))
            self.self_attn, self.mlp = Attention(), Mlp()

        def forward(self, x, cos, sin):
            x = x + self.self_attn(self.input_layernorm(x), cos, sin)
            return x + self.mlp(self.post_attention_layernorm(x))

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_tokens = nn.Embedding(shape["vocab"], hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(shape["layers"]))
            self.norm = nn.RMSNorm(hidden, NORM_EPSILON)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.lm_head = Inner(), nn.Linear(hidden, shape["vocab"], bias=False)

        def forward(self, tokens, targets, cos, sin):
            x = self.model.embed_tokens(tokens)
            cos, sin = cos.to(x.dtype), sin.to(x.dtype)
            for layer in self.model.layers:
                x = layer(x, cos, sin)
            logits = self.lm_head(self.model.norm(x)).flatten(0, 1)
            return F.cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits, targets.flatten())

    return Model()


def train_with_torch(folder, seed, attention, bin_dir):
    import numpy
    import safetensors.torch
    import torch
    shape = shape_of(folder)
    device = shape["device"]
    model = llama(shape, attention)
    model.load_state_dict(safetensors.torch.load_file(folder / f"weights-{seed}/model.safetensors"))
    model.to(device, torch.float64 if shape["compute"] == "fp64" else torch.float32)
    if device == "cuda":
        import torch.distributed
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    norms = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": norms, "weight_decay": 0.0}],
                                  lr=shape["rate"], betas=BETAS, eps=EPSILON)
    dim = shape["hidden"] // shape["heads"]
    frequencies = THETA ** -(torch.arange(0, dim, 2, device=device, dtype=torch.float64) / dim)
    angles = torch.arange(shape["length"], device=device)[:, None] * frequencies[None]
    cos, sin = angles.cos(), angles.sin()
    rounds = shape["batch"] // shape["micro_batch"]
    row = shape["length"] + 1
    batches = subprocess.Popen([bin_dir.parent / "tests/data/tandem_batches", folder / "tokens", "0", "train", str(seed), str(shape["length"]), "0",
                                str(shape["steps"]), "1", str(rounds), str(shape["micro_batch"])], stdout=subprocess.PIPE)
    losses = []
    for step in range(1, shape["steps"] + 1):
        loss_of_step = 0.0
        for _ in range(rounds):
            block = numpy.frombuffer(batches.stdout.read(shape["micro_batch"] * row * 8), dtype=numpy.int64)
            rows = torch.tensor(block, device=device).view(-1, row)
            loss = model(rows[:, :-1], rows[:, 1:], cos, sin) / rounds
            loss.backward()
            loss_of_step += loss.detach()
        rate = shape["rate"] * step / shape["warmup"] if step < shape["warmup"] else shape["rate"] * 0.5 * (
            1 + math.cos(math.pi * (step - shape["warmup"]) / (shape["steps"] - shape["warmup"])))
        for group in optimizer.param_groups:
            group["lr"] = rate
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss_of_step))
    (folder / f"torch-{attention}-{seed}.json").write_text(json.dumps(losses))
    print(f"torch {attention} seed {seed}: {losses[0]:.5f} -> {losses[-1]:.5f}", flush=True)


def train_with_tandem(folder, seed, bin_dir):
    job = folder / f"job-{seed}.yaml"
    job.write_text(JOB.format(folder=folder, seed=seed, **shape_of(folder)))
    with open(folder / f"tandem-{seed}.log", "w", encoding="utf-8") as log:
        subprocess.run([bin_dir / "tandem", "run", "-f", job, "--workers", "1"], check=True, stdout=log, stderr=log)
    losses = tandem_losses(folder, seed)
    print(f"tandem seed {seed}: {losses[0]:.5f} -> {losses[-1]:.5f}", flush=True)


def tandem_losses(folder, seed):
    lines = (json.loads(line) for line in (folder / f"tandem-{seed}/metrics.jsonl").read_text().splitlines())
    by_step = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return [by_step[step] for step in sorted(by_step) if step > 0]


def compare(folder, figure):
    curves = {seed: {path.name.removesuffix(f"-{seed}.json"): json.loads(path.read_text())
                     for path in sorted(folder.glob(f"torch-*-{seed}.json"))} | {"tandem": tandem_losses(folder, seed)}
              for seed in SEEDS if (folder / f"tandem-{seed}/metrics.jsonl").exists()}
    pairs = {}
    for runs in curves.values():
        names = sorted(runs)
        for i, a in enumerate(names):
            for b in names[i + 1:]:
                pairs.setdefault((a, b), []).extend(abs(x - y) for x, y in zip(runs[a], runs[b], strict=True))
    for (a, b), differences in sorted(pairs.items()):
        print(f"{a} against {b}: mean |difference| {sum(differences) / len(differences):.2e}, maximum {max(differences):.2e}, "
              f"{len(differences)} steps")
    if figure:
        import matplotlib
        matplotlib.use("svg")
        import matplotlib.pyplot as plt
        matplotlib.rcParams["svg.hashsalt"] = "tandem"
        seed, runs = next(iter(curves.items()))
        _, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, height_ratios=(2, 1))
        steps = range(1, len(runs["tandem"]) + 1)
        for name, losses in runs.items():
            top.plot(steps, losses, linewidth=1, label=name)
        for name, losses in runs.items():
            if name != "torch-cudnn":
                bottom.plot(steps, [x - y for x, y in zip(losses, runs["torch-cudnn"])], linewidth=1, label=f"{name} - torch-cudnn")
        top.set(ylabel="loss", title=f"{shape_of(folder)['compute']}, seed {seed}: one start, the same batches")
        bottom.set(xlabel="step", ylabel="difference of losses")
        top.legend()
        bottom.legend()
        plt.tight_layout()
        plt.savefig(figure, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "weights", "tandem", "torch", "compare"))
    parser.add_argument("folder", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--compute", choices=("fp32", "fp64"), default="fp32")
    parser.add_argument("--seed", type=int, choices=SEEDS, default=1)
    parser.add_argument("--attention", choices=("cudnn", "flash", "math"), default="math")
    parser.add_argument("--figure", type=pathlib.Path)
    parser.add_argument("--bin-dir", type=pathlib.Path, default=ROOT / "build/release/bin")
    options = parser.parse_args()
    if options.command == "make":
        shape = SMALL if options.small else LARGE
        make(options.folder, shape | ({"compute": options.compute} if options.small else {}), options.bin_dir)
    elif options.command == "weights":
        weights(options.folder)
    elif options.command == "tandem":
        train_with_tandem(options.folder, options.seed, options.bin_dir)
    elif options.command == "torch":
        train_with_torch(options.folder, options.seed, options.attention, options.bin_dir)
    else:
        compare(options.folder, options.figure)


if __name__ == "__main__":
    sys.exit(main())
