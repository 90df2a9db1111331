"""The stages of first_run: what each part runs, how long it may take, and what was predicted for one H100 or H200 before any GPU was there.

Step times are those of predictions.json, which benchmarks/gpu/predictions writes from `echelon simulate`. That knows neither graphs nor which kernels
attention has, so `by hand` is what these are expected to change.
"""

import dataclasses
import json
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


PREDICTIONS = json.loads((HERE / "predictions.json").read_text())["parts"]
STAGE_SECONDS = 540


@dataclasses.dataclass
class Part:
    name: str
    seconds: float  # deadline
    by_hand: str
    run: Callable

    @property
    def predicted(self):
        simulated = ", ".join(f"{ms} ms ({machine})" for machine, ms in PREDICTIONS.get(self.name, {}).items())
        return "; ".join(words for words in (simulated, self.by_hand) if words)


@dataclasses.dataclass
class Timed:
    """Median step time from the fourth step on, MFU against H100's peak, and how it compares with the prediction for the GPU that is closest."""

    case: str
    settings: tuple = ()
    changes: dict = dataclasses.field(default_factory=dict)
    document_tokens: int = 0  # of each document, to which attention is limited

    def words(self):
        return [*self.settings, *["--data.reset_attention_mask=true"] * (self.document_tokens > 0)]

    def __call__(self, b):
        case = b.case(self.case, **({} if b.a.dry_run else self.changes))
        chosen = [s for s in self.words() if not (b.a.dry_run and "float8" in s)]  # sizes below 16
        documents = self.document_tokens and (5 if b.a.dry_run else self.document_tokens)
        steps = b.train(b.name, case, 4 if b.a.dry_run else 8, *chosen, document_tokens=documents or None)
        seconds = statistics.median(s["step_seconds"] for s in steps[3:])
        tokens = case["batch"] * case["tokens"]
        seen = f"{seconds * 1e3:.1f} ms, {tokens / seconds / 1e3:.1f}k tokens/s, MFU {100 * cases.flops_per_step(case) / seconds / PEAK_FLOPS:.1f} %"
        return seen, "; ".join(w for w in (against_prediction(b, seconds), b.kernels()) if w)


def against_prediction(b, seconds):
    ratios = [f"{seconds * 1e3 / ms:.2f}x of {machine}'s" for machine, ms in PREDICTIONS.get(b.name, {}).items()]
    return "" if b.a.dry_run else ", ".join(ratios)


def timed(case, *settings, document_tokens=0, **changes):
    return Timed(case, settings, changes, document_tokens)


def device(b):
    libraries = b.command("ldd", b.a.build / ("libechelon_cuda_emulated.so" if b.a.dry_run else "libechelon_cuda.so"))
    missing = [line.split()[0] for line in libraries.splitlines() if "not found" in line]
    if missing:
        raise Failed(f"{', '.join(missing)} is not found (name its folder in LD_LIBRARY_PATH, or use --python)")
    b.echelon("bench", "--help")
    if b.a.dry_run:
        return "all libraries found", "the emulated device"
    b.command("nvidia-smi", "-q", "-d", "CLOCK,POWER,MEMORY")
    found = [line.split()[2] for line in libraries.splitlines() if "=> /" in line and "libcud" in line]
    return "all libraries found; " + ", ".join(gpu.ask("name", "driver_version", "memory.total", "clocks.max.sm") or []), ", ".join(found)


def losses(b):
    case, steps = dict(model="tiny-llama", tokens=16 if b.a.dry_run else 32, batch=2 if b.a.dry_run else 8), 3 if b.a.dry_run else 20
    cpu = b.train("losses-cpu", case, steps, device="cpu", dtype="float32")
    ours = b.train("losses-gpu", case, steps, dtype="float32")
    largest = max(abs(g["loss"] / c["loss"] - 1) for g, c in zip(ours, cpu, strict=True))
    if largest > 1e-4:
        raise Failed(f"float32 losses of {steps} steps are {largest:.1e} apart")
    return f"{largest:.1e} apart in {steps} steps", "sums in another order; " + b.kernels()


def tested(which, dry, *options):
    def run(b):
        passed = b.tests(dry if b.a.dry_run else which, *options)
        return passed, b.kernels() or "tolerances: tests/ops/numbers.h"

    return run


def sanitized(tool, which):
    def run(b):
        found = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))
        if b.a.dry_run or not found:
            raise Skipped("a dry run has no chip" if b.a.dry_run else "compute-sanitizer is not on this machine")
        return b.tests(which, before=[found, f"--tool={tool}", "--error-exitcode=9"]), b.kernels()

    return run


def determinism(b):
    case = b.case("gpt2-124m-1024", batch=2 if b.a.dry_run else 8)
    first, second = (b.train(f"bits-{i}", case, 3 if b.a.dry_run else 20) for i in (1, 2))
    for x, y in zip(first, second, strict=True):
        if (x["loss"], x["grad_norm"]) != (y["loss"], y["grad_norm"]):
            raise Failed(f"step {x['step']}: losses {x['loss']!r} and {y['loss']!r}, norms {x['grad_norm']!r} and {y['grad_norm']!r}")
    return f"the same bits in {len(first)} steps", b.kernels()


def memory(b):
    with gpu.WatchedMemory() as watched:
        steps = b.train("memory", b.case("llama-1b-4096"), 3)
    planned, allocated, driver = steps[-1]["predicted_memory_bytes"], steps[-1]["memory_peak_bytes"], watched.peak_bytes
    if planned != allocated:
        raise Failed(f"the plan has {planned} bytes, but {allocated} were allocated")
    more = f"the driver counts {driver - planned} more: its context, libraries and 32 MiB of workspace" if driver else "the driver's count is not known"
    return f"{planned} bytes planned and allocated", more


def bench(b):
    sizes = ["--largest-size=32", "--seconds=0.01", "--rounds=1"] if b.a.dry_run else ["--largest-size=8192", "--seconds=0.1", "--rounds=3"]
    output = b.echelon("bench", "--device=cuda", f"--output={b.a.out / 'machine.toml'}", *sizes)
    seen = "; ".join(" ".join(line.split()) for line in output.splitlines() if "bfloat16" in line or "memory copy" in line)
    return seen, f"all rates: {b.a.out / 'machine.toml'}"


def products(b):
    program = b.a.build / "bench_gpu_products"
    if b.a.dry_run or not program.exists():
        raise Skipped("a dry run has no chip" if b.a.dry_run else "bench_gpu_products is not in this pack")
    return " ".join(b.command(program).splitlines()[-1:]), "each product: the part's log"


def against_pytorch(b):
    if not b.a.python and not b.a.dry_run:
        raise Skipped("no --python with PyTorch")
    others = ["--no-pytorch", "--dry-run"] if b.a.dry_run else ["--python", b.a.python, "--case", "gpt2-124m-1024", "llama-1b-4096"]
    machine = ["--machine", b.a.out / "machine.toml"] if (b.a.out / "machine.toml").exists() else []
    b.command(sys.executable, HERE / "compare.py", *others, *machine, "--turns=1", "--steps=10", "--echelon", b.a.build / "echelon", "--out", b.a.out / "against_pytorch")
    return "the table is below", "each PyTorch side against Echelon with the same state"


def operations_of(b, name, case, *settings, document_tokens=None):
    """Seconds of each operation in one step, from a trace; other steps and what no operation has are left out."""
    b.train(name, case, 4 if b.a.dry_run else 6, "--metrics.machine=h100", f"--metrics.trace=steps {'3-3' if b.a.dry_run else '5-5'}", *settings, document_tokens=document_tokens)
    table = json.loads((b.a.out / name / "trace" / "rank0_operations.json").read_text())
    return {row["name"]: row["seconds"] for row in table["rows"]}, table


def trace(b):
    seconds, table = operations_of(b, "trace", b.case("llama-1b-4096"), NOT_DETERMINISTIC)
    largest = sorted(seconds.items(), key=lambda item: -item[1])[:8]
    floor = 100 * table["floor_seconds"] / table["step_seconds"]
    return ", ".join(f"{name} {1e3 * s:.2f} ms" for name, s in largest), f"the floor of H100 is {floor:.0f} % of the step; {b.kernels()}"


def ranges(b):
    """The same pairs of queries and keys as a causal mask and as ranges: of sequences of one document, which ends after the last one."""
    case = b.case("llama-1b-4096")
    causal, _ = operations_of(b, "ranges-causal", case, OWN)
    of_ranges, _ = operations_of(b, "ranges", case, OWN, "--data.reset_attention_mask=true", document_tokens=64 * case["tokens"])
    forward, backward = (causal[name] / of_ranges[name] for name in ("attention", "attention_backward"))
    if not b.a.dry_run and min(forward, backward) < 0.95:
        raise Failed(f"ranges are {forward:.2f}x as fast as a causal mask, their gradients {backward:.2f}x; 0.95x was asked for")
    return f"{forward:.2f}x forward, {backward:.2f}x backward", "both by our kernels: cuDNN would compute unbroken ranges as a causal mask"


def profiled(b):
    found = shutil.which("ncu", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))
    if b.a.dry_run or not found:
        raise Skipped("a dry run has no chip" if b.a.dry_run else "ncu is not on this machine")
    kernels = "regex:norm|gelu|swiglu|row_exp|softmax|adamw|dk_dv|dq_kernel|transposed"
    b.tests(f"{OPERATIONS}*/bfloat16:-*Matmul*", before=[found, "--clock-control=none", "--launch-count=40", "-k", kernels])
    return "40 kernels profiled", f"{b.log}"


NOT_DETERMINISTIC, GRAPHS = "--training.deterministic=false", "--training.cuda_graphs=true"
OWN, BOTH_RANKS = "--training.attention=own", "--parallelism.context_parallel_degree=2"
OPERATIONS = "Chip/OpsConformance"
FEWER_LAUNCHES = "1.0 ms less by hand: 372 launches of 1 us instead of 3.6"

ALL = {
    "first": [
        Part("device", 30, "all libraries are found", device),
        Part("losses", 45, "below 1e-4 apart", losses),
        Part("gpt2", 60, "cuDNN refuses gradients below 9.25", timed("gpt2-124m-1024")),
        Part("gpt2-own", 60, "cuDNN is 1.7x as fast forward, 2x backward", timed("gpt2-124m-1024", OWN)),
        Part("gpt2-timed", 60, "cuDNN computes all attention", timed("gpt2-124m-1024", NOT_DETERMINISTIC)),
        Part("gpt2-graphs", 60, FEWER_LAUNCHES, timed("gpt2-124m-1024", NOT_DETERMINISTIC, GRAPHS)),
        Part("llama", 75, "40 ms more by hand below cuDNN 9.25", timed("llama-1b-4096")),
        Part("attention-own", 75, "all pass", tested(f"{OPERATIONS}*Attention*", f"{OPERATIONS}.Attention/bfloat16", "--attention=own")),
        Part("attention", 75, "all pass; bfloat16 by cuDNN", tested(f"{OPERATIONS}*Attention*", f"{OPERATIONS}.Attention/*")),
    ],
    "attention": [
        Part("llama-timed", 80, "", timed("llama-1b-4096", NOT_DETERMINISTIC)),
        Part("llama-own", 80, "40 ms more by hand", timed("llama-1b-4096", NOT_DETERMINISTIC, OWN)),
        Part("trace", 80, "matmul first, attention second", trace),
        Part("documents", 80, "by our kernels", timed("llama-1b-4096", NOT_DETERMINISTIC, document_tokens=1024)),
        Part("ranges", 130, "ranges at least 0.95x as fast as causal", ranges),
        Part("cp2", 80, "that of one rank; two share the GPU: at least that", timed("gpt2-124m-4096", NOT_DETERMINISTIC, BOTH_RANKS)),
    ],
    "rates": [
        Part("bench", 300, "500 to 670 TFLOP/s, 3.9 TB/s (H200)", bench),
        Part("products", 230, "the first algorithm within 3 % of the best", products),
    ],
    "pytorch": [Part("against_pytorch", 530, "PyTorch takes 1.2 times as long", against_pytorch)],
    "host": [
        Part(f"gpt2-{size}{'-graphs' if graphs else ''}", 60, FEWER_LAUNCHES * graphs, timed("gpt2-124m-1024", *[GRAPHS] * graphs, batch=size))
        for size in (1, 2, 4, 8) for graphs in (0, 1)
    ],
    "operations": [Part("operations", 530, "all pass", tested(f"{OPERATIONS}*", f"{OPERATIONS}.Activations/*"))],
    "ranks": [
        Part("nccl", 60, "all pass", tested("ChipNccl.*", "ChipNccl.*")),
        Part("determinism", 110, "the same bits", determinism),
        Part("memory", 80, "plan and allocation are equal", memory),
        Part("parity", 280, "all pass", tested("*/llama_*tp2*_m2*:*/gpt2_tied*tp2_pp2*", "Grid/ChipParity.EqualsOneRank/gpt2_tied_replicate1_shard1_tp2_pp1_*")),
    ],
    "sanitizers": [
        Part("memcheck", 200, "no error", sanitized("memcheck", f"{OPERATIONS}*/bfloat16:-*Matmul*")),
        Part("racecheck", 200, "no error", sanitized("racecheck", f"{OPERATIONS}*CrossEntropy*/bfloat16:{OPERATIONS}*Attention*/bfloat16")),
        Part("profile", 130, "80 % of the memory rate", profiled),
    ],
    "large": [
        Part("llama-8b", 200, "", timed("llama-8b-4096", NOT_DETERMINISTIC)),
        Part("llama-8b-bfloat16", 200, "", timed("llama-8b-4096", NOT_DETERMINISTIC, *cases.AS_BFLOAT16_PYTORCH)),
        Part("float8", 120, "a tenth faster than llama-timed by hand", timed("llama-1b-4096", NOT_DETERMINISTIC, "--training.linear_dtype=float8")),
    ],
}  # fmt: skip

for stage, parts in ALL.items():
    assert sum(part.seconds for part in parts) <= STAGE_SECONDS, f"the parts of stage {stage} take more than {STAGE_SECONDS} s"
