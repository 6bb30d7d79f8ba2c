"""A training step of GPT-2 in PyTorch, as the peer of ours: bf16, fused attention, fused AdamW, eager and compiled.

  python3 gpt2_torch.py gpt2_124m 8      # tokens a second, median of the steps after the warm-up
"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

SHAPES = {"gpt2_124m": (768, 12, 12), "gpt2_350m": (1024, 24, 16), "gpt2_1_5b": (1600, 48, 25)}
VOCABULARY, SEQUENCE, WARM_UP, STEPS = 50304, 1024, 4, 12


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(h, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, hidden, layers, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, hidden), nn.Embedding(SEQUENCE, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def measure(shape, batch, compiled):
    torch.manual_seed(1)
    model = Gpt(*shape).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    step = torch.compile(model) if compiled else model
    ids = torch.randint(0, 50257, (batch, SEQUENCE + 1), device="cuda")
    times = []
    for i in range(WARM_UP + STEPS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = step(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if i >= WARM_UP:
            times.append(time.perf_counter() - begin)
    median = statistics.median(times)
    spread = (max(times) - min(times)) / median
    return f"{median * 1e3:.2f} ms, {batch * SEQUENCE / median:,.0f} tokens/s, spread {spread:.1%}"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(f"usage: gpt2_torch.py {'|'.join(SHAPES)} BATCH")
    torch.backends.cuda.matmul.allow_tf32 = True
    for compiled in (False, True):
        name = f"PyTorch {torch.__version__} {'compiled' if compiled else 'eager'}"
        print(f"{name}: {measure(SHAPES[sys.argv[1]], int(sys.argv[2]), compiled)}", flush=True)


if __name__ == "__main__":
    main()
