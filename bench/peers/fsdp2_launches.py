# SPDX-License-Identifier: Apache-2.0
"""PyTorch FSDP2 with compile on one GPU: a Llama of small layers in bf16, which launches bound. argv: hidden inner layers heads
kv_heads vocab seq accum mode (of torch.compile). Prints "ready" once it is compiled and warm; for each number that it
reads, it runs so many steps and prints what one took in milliseconds."""
import os, sys, time, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

hidden, inner, layers, heads, kv_heads, vocab, seq, accum = map(int, sys.argv[1:9])
mode = sys.argv[9]
dim = hidden // heads
os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"})
os.environ.setdefault("MASTER_PORT", "29511")
torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.wqkv = nn.Linear(hidden, (heads + 2 * kv_heads) * dim, bias=False)
        self.wo = nn.Linear(hidden, hidden, bias=False)
        self.w13, self.w2 = nn.Linear(hidden, 2 * inner, bias=False), nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = self.wqkv(self.n1(x)).split([hidden, kv_heads * dim, kv_heads * dim], -1)
        q, k, v = (z.view(b, t, -1, dim).transpose(1, 2) for z in (q, k, v))

        def rope(z):
            z1, z2 = z.chunk(2, -1)
            return torch.cat([z1 * cos - z2 * sin, z2 * cos + z1 * sin], -1)

        o = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=True)
        x = x + self.wo(o.transpose(1, 2).reshape(b, t, hidden))
        gate, up = self.w13(self.n2(x)).chunk(2, -1)
        return x + self.w2(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(vocab, hidden), nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, x, y, cos, sin):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h, cos, sin)
        return F.cross_entropy(self.head(self.norm(h)).float().view(-1, vocab), y.reshape(-1))


with torch.device("cuda"):
    model = Model()
mesh = init_device_mesh("cuda", (1,))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model.blocks:
    block.compile(mode=mode)
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
angles = torch.arange(seq, device="cuda")[:, None] / (10000 ** (torch.arange(0, dim, 2, device="cuda") / dim))[None]
cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()


def step():
    for a in range(accum):
        torch.compiler.cudagraph_mark_step_begin()
        tokens = torch.randint(0, vocab, (1, seq + 1), device="cuda")
        model.set_requires_gradient_sync(a == accum - 1)
        (model(tokens[:, :-1], tokens[:, 1:], cos, sin) / accum).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def milliseconds(steps):
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.time() - start) / steps * 1e3


milliseconds(8)
print("ready", flush=True)
for line in sys.stdin:
    print(milliseconds(int(line)), flush=True)
dist.destroy_process_group()
