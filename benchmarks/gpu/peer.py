"""PyTorch's side on a GPU: trains one case and prints one JSON object per step. torch.compile, SDPA, fused AdamW."""

import argparse
import json
import math
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "against_pytorch"))
import models  # noqa: E402

sys.path.insert(0, str(HERE))
import importlib.util  # noqa: E402

spec = importlib.util.spec_from_file_location("gpu_cases", HERE / "cases.py")  # `cases` is the other benchmark's, which models.py's folder has
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)


def main():
    a = parse()
    device = torch.device(a.device)
    torch.set_float32_matmul_precision("high")
    models.LlamaBlock.repeats_kv = device.type == "cpu"  # on GPUs SDPA's kernels take grouped heads
    say(torch=torch.__version__, device=torch.cuda.get_device_name() if device.type == "cuda" else "processor")
    train(a, cases.ALL_CASES[a.case], device)


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--case", choices=cases.ALL_CASES, required=True)
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--weights", default="bfloat16", choices=["bfloat16", "autocast"], help="bfloat16 weights without masters, or float32 ones under autocast")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--no-compile", action="store_true")
    return p.parse_args()


class Model(nn.Module):
    """A model of models.py with its head, and blocks that are formed again in backward where the case says so."""

    def __init__(self, case):
        super().__init__()
        sizes = cases.sizes_of(case)
        self.body = models.make(sizes["family"], sizes)
        self.head = None if sizes["tied"] else nn.Linear(sizes["width"], sizes["vocab"], bias=False)

    def forward(self, tokens, targets):
        weight = self.body.embedding.weight if self.head is None else self.head.weight
        logits = F.linear(self.body(tokens).flatten(0, 1), weight)
        return F.cross_entropy(logits.float(), targets.flatten())  # the cast is fused by torch.compile


def make_model(case, device, dtype):
    with torch.device("meta"):
        model = Model(case)
    rope = {k: b.to(device) for k, b in models.make(cases.sizes_of(case)["family"], dict(cases.sizes_of(case), layers=0)).named_buffers()}
    model = model.to(dtype).to_empty(device=device)
    for name, buffer in rope.items():
        setattr(model.body, name, buffer)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0, 0.02) if p.dim() == 2 else p.fill_(0.0 if name.endswith("bias") else 1.0)
    return model


def make_optimizer(model, device):
    o = cases.OPTIMIZER
    matrices, others = [p for p in model.parameters() if p.dim() > 1], [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": o["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], fused=device.type == "cuda")


def train(a, case, device):
    model = make_model(case, device, torch.bfloat16 if a.weights == "bfloat16" else torch.float32)
    parameters, optimizer = list(model.parameters()), make_optimizer(model, device)
    compute = model if a.no_compile else torch.compile(model)
    vocab, B, T = cases.sizes_of(case)["vocab"], case["batch"], case["tokens"]
    generator = torch.Generator().manual_seed(2)

    def step():
        ids = torch.randint(vocab, (B, T + 1), generator=generator).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=a.weights == "autocast"):
            loss = compute(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parameters, cases.OPTIMIZER["max_norm"], foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item(), norm.item()

    for number in range(a.steps):
        begin = time.perf_counter()
        loss, norm = step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        peak = torch.cuda.max_memory_reserved() if device.type == "cuda" else 0
        assert math.isfinite(loss), f"step {number + 1}: the loss is {loss}"
        say(step=number + 1, loss=loss, grad_norm=norm, step_seconds=time.perf_counter() - begin, memory_peak_bytes=peak)


def say(**fields):
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main()
