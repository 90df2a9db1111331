"""What PyTorch makes of the products that bench_gemm measures: one thread, by its processor time, the least of some tries, in % of bench_gemm's peak.

usage: build/bench/bench_gemm > table; python benchmarks/gemm/peer.py table [tries]
"""

import re
import sys
import time

import torch

DTYPES = (torch.float32, torch.bfloat16)


def seconds(kind, m, n, k, dtype, tries):
    a = torch.rand((k, m) if kind == "W" else (m, k)).to(dtype)
    b = torch.rand((n, k) if kind == "F" else (k, n)).to(dtype)
    a, b = (a.t() if kind == "W" else a), (b.t() if kind == "F" else b)
    out = torch.zeros((m, n), dtype=dtype)
    best = float("inf")
    for _ in range(tries):
        start = time.thread_time()
        torch.addmm(out, a, b, out=out) if kind == "W" else torch.mm(a, b, out=out)
        best = min(best, time.thread_time() - start)
    return best


def main():
    tries = int(sys.argv[2]) if len(sys.argv) > 2 else 6
    torch.set_num_threads(1)
    peak, total_flops, totals = 0.0, 0.0, [0.0, 0.0]
    for line in open(sys.argv[1]):
        if found := re.match(r"(\w+), % of ([\d.]+) GFLOP/s", line):
            peak, total_flops, totals = 1e9 * float(found[2]), 0.0, [0.0, 0.0]
            print(f"\n{found[1]}, PyTorch {torch.__version__}\n| times | m | n | k | float32 | bfloat16 |")
        if found := re.match(r"\| +(\d+) (\w) \| (\d+) \| (\d+) \| (\d+)", line):
            times, kind, (m, n, k) = int(found[1]), found[2], map(int, found.groups()[2:])
            flops = 2 * m * n * k
            measured = [seconds(kind, m, n, k, dtype, tries if flops < 1e10 else max(2, tries // 2)) for dtype in DTYPES]
            print(f"| {times:2} {kind} | {m} | {n} | {k} | " + " | ".join(f"{100 * flops / s / peak:.1f}" for s in measured) + " |", flush=True)
            total_flops += times * flops
            totals = [total + times * s for total, s in zip(totals, measured)]
        if line.startswith("| all "):
            print("| all | | | | " + " | ".join(f"{100 * total_flops / s / peak:.1f}" for s in totals) + " |", flush=True)


if __name__ == "__main__":
    main()
