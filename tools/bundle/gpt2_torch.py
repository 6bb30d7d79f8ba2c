"""A training step of GPT-2 in PyTorch, as the peer of ours: bf16, fused attention, fused AdamW.

  python3 gpt2_torch.py eager|compiled gpt2_124m:8:none ...   # tokens a second, median of the steps after the warm-up
  python3 gpt2_torch.py attention                             # fused attention alone, by each of PyTorch's ways

A model is NAME:BATCH:RECOMPUTE; with `full` every block is computed again in the backward pass. What fails leaves the
others, and ends with 1. Where there is no PyTorch, or none that sees a GPU, it says so and ends with 0.
"""

import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    print(f"no PyTorch here: {error}")
    sys.exit(0)

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
    def __init__(self, hidden, layers, heads, recompute):
        super().__init__()
        self.recompute = recompute
        self.tokens, self.positions = nn.Embedding(VOCABULARY, hidden), nn.Embedding(SEQUENCE, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def measure(shape, batch, compiled, recompute):
    torch.manual_seed(1)
    with torch.device("cuda"):  # drawn there: on the host a large model takes longer than the steps
        model = Gpt(*shape, recompute)
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


def median_time(run, warm_up=3, times=11):
    """Milliseconds."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    for i in range(-warm_up, times):
        if i >= 0:
            events[i].record()
        run()
    events[times].record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:]))


def measure_attention():
    """As GpuAttentionTest.Speed in tests/gpu/kernels_test.cc: causal, bfloat16, the median of several."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    length, heads = 8192, 16
    for d in (64, 128):
        q, k, v, dy = (torch.randn(1, heads, length, d, device="cuda", dtype=torch.bfloat16) for _ in range(4))
        for x in (q, k, v):
            x.requires_grad_()
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
            if not hasattr(SDPBackend, name):
                continue
            try:
                with sdpa_kernel(getattr(SDPBackend, name)):
                    attend = lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                    y = attend()
                    times = {
                        "forward": (median_time(attend), 2),
                        "backward": (median_time(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)), 5),
                    }
            except RuntimeError as error:
                print(f"heads of {d}, {name}: {error}".splitlines()[0])
                continue
            for way, (ms, products) in times.items():
                print(f"attention {way}, {length} x {heads} heads of {d}, causal, bfloat16: {name} {ms:.3f} ms, "
                      f"{products * length * length * heads * d / ms / 1e9:.0f} TFLOP/s")


def main():
    words = sys.argv[1:]
    if words == ["attention"]:
        if torch.cuda.is_available():
            measure_attention()
        else:
            print(f"PyTorch {torch.__version__} sees no GPU")
        return
    runs = [word.split(":") for word in words[1:]]
    right = all(len(r) == 3 and r[0] in SHAPES and r[1].isdigit() and r[2] in ("none", "full") for r in runs)
    if not runs or not right or words[0] not in ("eager", "compiled"):
        sys.exit(f"usage: gpt2_torch.py eager|compiled {'|'.join(SHAPES)}:BATCH:none|full ..., or attention")
    if not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no GPU")
        return
    torch.backends.cuda.matmul.allow_tf32 = True
    failed = 0
    for name, batch, recompute in runs:
        try:
            step = measure(SHAPES[name], int(batch), words[0] == "compiled", recompute == "full")
        except RuntimeError as error:
            step, failed = f"FAILED: {error}".splitlines()[0], 1
        print(f"PyTorch {torch.__version__} {words[0]}, {name} batch {batch}, recompute {recompute}: {step}", flush=True)
        torch.cuda.empty_cache()
    sys.exit(failed)


if __name__ == "__main__":
    main()
