# SPDX-License-Identifier: Apache-2.0
"""The Llama that the peers train."""
import torch, torch.nn as nn, torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, hidden, inner, heads, kv_heads):
        super().__init__()
        self.dim, self.heads, self.kv_heads = hidden // heads, heads, kv_heads
        self.n1, self.n2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.wqkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.dim, bias=False)
        self.wo = nn.Linear(hidden, hidden, bias=False)
        self.w13, self.w2 = nn.Linear(hidden, 2 * inner, bias=False), nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, hidden = x.shape
        q, k, v = self.wqkv(self.n1(x)).split([hidden, self.kv_heads * self.dim, self.kv_heads * self.dim], -1)
        q, k, v = (z.view(b, t, -1, self.dim).transpose(1, 2) for z in (q, k, v))

        def rope(z):
            z1, z2 = z.chunk(2, -1)
            return torch.cat([z1 * cos - z2 * sin, z2 * cos + z1 * sin], -1)

        o = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=self.kv_heads < self.heads)
        x = x + self.wo(o.transpose(1, 2).reshape(b, t, hidden))
        gate, up = self.w13(self.n2(x)).chunk(2, -1)
        return x + self.w2(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, hidden, inner, layers, heads, kv_heads, vocab):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(vocab, hidden), nn.ModuleList(Block(hidden, inner, heads, kv_heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, x, y, cos, sin):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h, cos, sin)
        return F.cross_entropy(self.head(self.norm(h)).float().flatten(0, 1), y.flatten())


def rotations(seq, dim, device):
    """Cosines and sines of the positions of a sequence, in float."""
    angles = torch.arange(seq, device=device)[:, None] / (10000 ** (torch.arange(0, dim, 2, device=device) / dim))[None]
    return angles.cos(), angles.sin()
