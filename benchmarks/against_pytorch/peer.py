"""PyTorch's side: trains one case and prints one JSON object per step. Options are the knobs that knobs.py tries."""

import time

began = time.time()
import argparse
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import cases
import models


def main():
    arguments = parse()
    if arguments.make_weights:
        return make_weights(cases.CASES[arguments.case], arguments.folder)
    torch.set_num_threads(arguments.threads)
    if arguments.matmul_precision:
        torch.set_float32_matmul_precision(arguments.matmul_precision)
    torch.backends.mkldnn.enabled = not arguments.no_mkldnn
    models.Experts.how = arguments.experts
    models.LlamaBlock.repeats_kv = not arguments.enable_gqa
    say(torch=torch.__version__, rss_after_import_bytes=memory("VmRSS"), threads=torch.get_num_threads())
    train(arguments)


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--case", choices=cases.CASES, required=True)
    p.add_argument("--folder", required=True, help="config.json, model.safetensors and tokens")
    p.add_argument("--make-weights", action="store_true", help="draw the folder's model.safetensors and end")
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "autocast"], help="autocast: float32 weights, bfloat16 products")
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--loss", default="logits", choices=["logits", "chunked"], help="all logits at once, or F.linear_cross_entropy in chunks")
    p.add_argument("--adamw", default="fused", choices=["fused", "foreach", "loop"])
    p.add_argument("--clip", default="foreach", choices=["foreach", "loop"])
    p.add_argument("--enable-gqa", action="store_true", help="grouped heads by SDPA instead of repeated keys and values")
    p.add_argument("--experts", default="grouped", choices=["grouped", "loop"], help="one F.grouped_mm of all experts, or a product after the other")
    p.add_argument("--transformers", choices=["eager", "batched_mm", "grouped_mm"], help="the model of transformers, with its experts so computed")
    p.add_argument("--matmul-precision", choices=["highest", "high", "medium"])
    p.add_argument("--no-mkldnn", action="store_true")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--profile", help="write torch.profiler's table of the last step here")
    return p.parse_args()


def make_weights(case, folder):
    """Normal(0, 0.02), biases 0, gains 1, under Hugging Face's names; both sides start from them."""
    torch.manual_seed(1)
    weights = {}
    for name, p in models.make(case["family"], case["sizes"]).named_parameters():
        published, transposed = models.published_name(case["family"], name)
        if p.dim() == 3:
            weights |= {published.format(e): torch.empty_like(part).normal_(0, 0.02) for e, part in enumerate(p.detach())}
            continue
        if p.dim() == 2:
            w = torch.empty_like(p).normal_(0, 0.02)
        else:
            w = torch.zeros_like(p) if name.endswith("bias") else torch.ones_like(p)
        weights[published] = (w.T if transposed else w).detach().contiguous()
    save_file(weights, pathlib.Path(folder, "model.safetensors"), metadata={"format": "pt"})


def load(case, folder, dtype):
    with torch.device("meta"):
        model = models.make(case["family"], case["sizes"])
    buffers = {name: b for name, b in models.make(case["family"], dict(case["sizes"], layers=0)).named_buffers()}
    weights = load_file(pathlib.Path(folder, "model.safetensors"))
    state = {}
    for name, p in model.named_parameters():
        published, transposed = models.published_name(case["family"], name)
        if p.dim() == 3:
            state[name] = torch.stack([weights.pop(published.format(e)) for e in range(p.shape[0])]).to(dtype)
            continue
        w = weights.pop(published)
        state[name] = (w.T.contiguous() if transposed else w).to(dtype)
    assert not weights, f"left over: {list(weights)}"
    model.load_state_dict(state, assign=True)
    for name, b in buffers.items():
        setattr(model, name, b)
    return model.requires_grad_()


def loss_of(model, tokens, targets, kind):
    x = model(tokens).flatten(0, 1)
    if kind == "chunked":
        return F.linear_cross_entropy(x, model.embedding.weight, targets, options=nn.LinearCrossEntropyOptions())
    return F.cross_entropy(F.linear(x, model.embedding.weight).float(), targets)


def make_optimizer(model, kind):
    o = cases.OPTIMIZER
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": o["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    how = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}[kind]
    return torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"], **how)


def train(a):
    case = cases.CASES[a.case]
    dtype = torch.bfloat16 if a.dtype == "bfloat16" else torch.float32
    model = models.OfTransformers(a.folder, a.transformers, dtype) if a.transformers else load(case, a.folder, dtype)
    optimizer = make_optimizer(model, a.adamw)
    parameters = list(model.parameters())
    compute = torch.compile(loss_of) if a.compile else loss_of
    B, T = case["batch"], case["tokens"]

    def step(number):
        tokens, targets = (torch.tensor(ids, dtype=torch.long) for ids in cases.batch(case, a.folder, number))
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "autocast"):
            loss = compute(model, tokens.view(B, T), targets, a.loss)
        loss.backward()
        exact = exact_norm(parameters) if number < 2 else None  # steps that are not timed
        norm = nn.utils.clip_grad_norm_(parameters, cases.OPTIMIZER["max_norm"], foreach=a.clip == "foreach")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item(), exact or norm.item()

    for number in range(a.steps):
        if a.profile and number == a.steps - 1:
            return profile(lambda: step(number), a.profile)
        begin = time.perf_counter()
        loss, norm = step(number)
        say(step=number + 1, loss=loss, grad_norm=norm, step_seconds=time.perf_counter() - begin, peak_bytes=memory("VmHWM"))


def exact_norm(parameters):
    """The gradients' norm in float64. PyTorch sums squares in float32, and over the 38 M numbers of a token table half a thousandth gets lost."""
    return math.sqrt(sum(part.double().square().sum().item() for p in parameters for part in p.grad.flatten().split(1 << 18)))


def profile(function, path):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        function()
    pathlib.Path(path).write_text(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=50))


def memory(field):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def say(**fields):
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main()
