"""The stages of first_run: what each part runs, how long it may take, and what was predicted for one H100 or H200 before any GPU was there.

Step times without graphs are `echelon simulate --machine=h100` (8 B: h200) at 0f98082. With graphs the sweep's are 2.8 ms less: about 1,080 launches
that then cost 1 us each instead of 3.6. The simulator has no deterministic mode; predictions by hand include it, and
float8 is a tenth faster by hand than 274 ms.
"""

import dataclasses
import os
import pathlib
import shutil
import statistics
import sys
from typing import Callable

import cases
import gpu
from part_commands import Bench, Failed, Skipped  # noqa: F401

HERE = pathlib.Path(__file__).resolve().parent
PEAK_FLOPS = 989e12  # of H100 and H200 in bfloat16, dense


@dataclasses.dataclass
class Part:
    name: str
    seconds: float  # deadline
    predicted: str
    run: Callable


def device(b):
    libraries = b.command("ldd", b.a.build / ("libechelon_cuda_emulated.so" if b.a.dry_run else "libechelon_cuda.so"))
    missing = [line.split()[0] for line in libraries.splitlines() if "not found" in line]
    if missing:
        raise Failed(f"{', '.join(missing)} is not found (name its folder in LD_LIBRARY_PATH, or use --python)")
    b.echelon("bench", "--help")
    if b.a.dry_run:
        return "all libraries found"
    b.command("nvidia-smi", "-q", "-d", "CLOCK,POWER,MEMORY")
    return "all libraries found; " + ", ".join(gpu.ask("name", "driver_version", "memory.total", "clocks.max.sm") or [])


def losses(b):
    case, steps = dict(model="tiny-llama", tokens=16 if b.a.dry_run else 32, batch=2 if b.a.dry_run else 8), 3 if b.a.dry_run else 20
    cpu = b.train("losses-cpu", case, steps, device="cpu", dtype="float32")
    ours = b.train("losses-gpu", case, steps, dtype="float32")
    largest = max(abs(g["loss"] / c["loss"] - 1) for g, c in zip(ours, cpu, strict=True))
    if largest > 1e-4:
        raise Failed(f"float32 losses of {steps} steps are {largest:.1e} apart")
    return f"{largest:.1e} apart in {steps} steps"


def tested(which, dry):
    return lambda b: b.tests(dry if b.a.dry_run else which)


def sanitized(tool, which):
    def run(b):
        found = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))
        if b.a.dry_run or not found:
            raise Skipped("a dry run has no chip" if b.a.dry_run else "compute-sanitizer is not on this machine")
        return b.tests(which, found, f"--tool={tool}", "--error-exitcode=9")

    return run


def timed(name, *settings, **changes):
    """Median step time from the fourth step on, and MFU against H100's peak."""

    def run(b):
        case = b.case(name, **({} if b.a.dry_run else changes))
        chosen = [] if b.a.dry_run and any("float8" in s for s in settings) else settings  # sizes below 16
        steps = b.train(b.name, case, 4 if b.a.dry_run else 8, *chosen)
        seconds = statistics.median(s["step_seconds"] for s in steps[3:])
        tokens = case["batch"] * case["tokens"]
        return f"{seconds * 1e3:.1f} ms, {tokens / seconds / 1e3:.1f}k tokens/s, MFU {100 * cases.flops_per_step(case) / seconds / PEAK_FLOPS:.1f} %"

    return run


def determinism(b):
    case = b.case("gpt2-124m-1024", batch=2 if b.a.dry_run else 8)
    first, second = (b.train(f"bits-{i}", case, 3 if b.a.dry_run else 20) for i in (1, 2))
    for x, y in zip(first, second, strict=True):
        if (x["loss"], x["grad_norm"]) != (y["loss"], y["grad_norm"]):
            raise Failed(f"step {x['step']}: losses {x['loss']!r} and {y['loss']!r}, norms {x['grad_norm']!r} and {y['grad_norm']!r}")
    return f"the same bits in {len(first)} steps"


def memory(b):
    with gpu.WatchedMemory() as watched:
        steps = b.train("memory", b.case("llama-1b-4096"), 3)
    planned, allocated, driver = steps[-1]["predicted_memory_bytes"], steps[-1]["memory_peak_bytes"], watched.peak_bytes
    if planned != allocated:
        raise Failed(f"the plan has {planned} bytes, but {allocated} were allocated")
    return f"{planned} bytes planned and allocated" + (f", {driver - planned} more by the driver's count" if driver else "")


def bench(b):
    sizes = ["--largest-size=32", "--seconds=0.01", "--rounds=1"] if b.a.dry_run else ["--largest-size=8192", "--seconds=0.1", "--rounds=3"]
    output = b.echelon("bench", "--device=cuda", f"--output={b.a.out / 'machine.toml'}", *sizes)
    return "; ".join(" ".join(line.split()) for line in output.splitlines() if "bfloat16" in line or "memory copy" in line)


def products(b):
    program = b.a.build / "bench_gpu_products"
    if b.a.dry_run or not program.exists():
        raise Skipped("a dry run has no chip" if b.a.dry_run else "bench_gpu_products is not in this pack")
    return " ".join(b.command(program).splitlines()[-1:])


def against_pytorch(b):
    if not b.a.python and not b.a.dry_run:
        raise Skipped("no --python with PyTorch")
    others = ["--no-pytorch", "--dry-run"] if b.a.dry_run else ["--python", b.a.python, "--case", "gpt2-124m-1024", "llama-1b-4096"]
    machine = ["--machine", b.a.out / "machine.toml"] if (b.a.out / "machine.toml").exists() else []
    b.command(sys.executable, HERE / "compare.py", *others, *machine, "--turns=1", "--steps=10", "--echelon", b.a.build / "echelon", "--out", b.a.out / "against_pytorch")
    return "the table is below"


NOT_DETERMINISTIC, GRAPHS = "--training.deterministic=false", "--training.cuda_graphs=true"
OPERATIONS = "Chip/OpsConformance"
SWEEP = {1: (6.9, 4.1), 2: (8.9, 6.1), 4: (12.8, 10.0), 8: (20.4, 17.6)}  # sequences: ms without and with graphs

ALL = {
    "first": [
        Part("device", 30, "all libraries are found", device),
        Part("losses", 60, "below 1e-4 apart", losses),
        Part("gpt2", 75, "66 ms", timed("gpt2-124m-1024")),
        Part("gpt2-timed", 75, "66 ms", timed("gpt2-124m-1024", NOT_DETERMINISTIC)),
        Part("gpt2-graphs", 75, "63 ms", timed("gpt2-124m-1024", NOT_DETERMINISTIC, GRAPHS)),
        Part("llama", 100, "314 ms by hand, 247 simulated", timed("llama-1b-4096")),
        Part("llama-timed", 100, "274 ms by hand, 247 simulated", timed("llama-1b-4096", NOT_DETERMINISTIC)),
        Part("attention", 150, "all pass", tested(f"{OPERATIONS}*Attention*", f"{OPERATIONS}.Attention/*")),
    ],
    "rates": [
        Part("bench", 300, "500 to 670 TFLOP/s, 3.9 TB/s (H200)", bench),
        Part("products", 230, "the first algorithm within 3 % of the best", products),
    ],
    "pytorch": [Part("against_pytorch", 530, "PyTorch takes 1.2 times as long", against_pytorch)],
    "host": [
        Part(f"gpt2-{size}{'-graphs' if graphs else ''}", 60, f"{SWEEP[size][graphs]} ms", timed("gpt2-124m-1024", *[GRAPHS] * graphs, batch=size))
        for size in SWEEP for graphs in (0, 1)
    ],
    "operations": [Part("operations", 530, "all pass", tested(f"{OPERATIONS}*", f"{OPERATIONS}.Activations/*"))],
    "ranks": [
        Part("determinism", 120, "the same bits", determinism),
        Part("memory", 90, "plan and allocation are equal", memory),
        Part("parity", 300, "all pass", tested("*/llama_*tp2*_m2*:*/gpt2_tied*tp2_pp2*", "Grid/ChipParity.EqualsOneRank/gpt2_tied_replicate1_shard1_tp2_pp1_*")),
    ],
    "sanitizers": [
        Part("memcheck", 260, "no error", sanitized("memcheck", f"{OPERATIONS}*/bfloat16:-*Matmul*")),
        Part("racecheck", 260, "no error", sanitized("racecheck", f"{OPERATIONS}*CrossEntropy*/bfloat16:{OPERATIONS}*Attention*/bfloat16")),
    ],
    "large": [
        Part("llama-8b", 250, "775 ms (H200)", timed("llama-8b-4096", NOT_DETERMINISTIC)),
        Part("float8", 120, "250 ms", timed("llama-1b-4096", NOT_DETERMINISTIC, "--training.linear_dtype=float8")),
    ],
}  # fmt: skip
