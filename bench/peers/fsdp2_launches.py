# SPDX-License-Identifier: Apache-2.0
"""PyTorch FSDP2 with compile on one GPU: a Llama of small layers in bf16, which launches bound. argv: hidden inner layers heads
kv_heads vocab seq accum mode (of torch.compile). Prints "ready" once it is compiled and warm; for each number that it
reads, it runs so many steps and prints what one took in milliseconds."""
import os, sys, time, torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from llama import Model, rotations

hidden, inner, layers, heads, kv_heads, vocab, seq, accum = map(int, sys.argv[1:9])
mode = sys.argv[9]
os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"})
os.environ.setdefault("MASTER_PORT", "29511")
torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
torch.manual_seed(0)
with torch.device("cuda"):
    model = Model(hidden, inner, layers, heads, kv_heads, vocab)
mesh = init_device_mesh("cuda", (1,))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model.blocks:
    block.compile(mode=mode)
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
cos, sin = (table.bfloat16() for table in rotations(seq, hidden // heads, "cuda"))


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
