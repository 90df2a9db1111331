"""The peer's settings, and Echelon's. The table of what each of the peer's does to the step is in docs/results/performance.md; `best` is what came out of it."""

import os

import cases

LIB = "/usr/lib/x86_64-linux-gnu/"
# Freed blocks stay in the process instead of going back to the system, so that no step faults the same pages in again.
KEEP = {"MALLOC_MMAP_THRESHOLD_": "17179869184", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "268435456"}
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
PIN = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}

TCMALLOC, JEMALLOC = {"LD_PRELOAD": LIB + "libtcmalloc_minimal.so.4"}, {"LD_PRELOAD": LIB + "libjemalloc.so.2"}
NO_DECAY = {"MALLOC_CONF": "oversize_threshold:0,background_thread:false,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always"}

BASE = KEEP | HUGE
VARIANTS = {
    "plain": {},
    "keep": {"environment": KEEP},
    "keep+thp": {"environment": KEEP | {"THP_MEM_ALLOC_ENABLE": "1"}},
    "keep+huge": {"environment": BASE},
    "keep+huge+pin": {"environment": BASE | PIN},
    "keep+huge+active": {"environment": BASE | {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "INFINITY"}},
    "tcmalloc": {"environment": TCMALLOC},
    "tcmalloc+thp": {"environment": TCMALLOC | {"THP_MEM_ALLOC_ENABLE": "1", "TCMALLOC_RELEASE_RATE": "0"}},
    "jemalloc": {"environment": JEMALLOC | NO_DECAY},
    "mkl": {"environment": BASE, "options": ["--no-mkldnn"]},
    "mkl-avx2": {"environment": BASE | {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}},
    "medium": {"environment": BASE, "options": ["--matmul-precision", "medium"]},
    "chunked": {"environment": BASE, "options": ["--loss", "chunked"]},
    "foreach-adamw": {"environment": BASE, "options": ["--adamw", "foreach"]},
    "loop-clip": {"environment": BASE, "options": ["--clip", "loop"]},
    "gqa": {"environment": BASE, "options": ["--enable-gqa"]},
    "autocast": {"environment": BASE, "dtype": "autocast"},
    "autocast-chunked": {"environment": BASE, "dtype": "autocast", "options": ["--loss", "chunked"]},
    "compile": {"environment": JEMALLOC | NO_DECAY, "options": ["--compile"]},
    "jemalloc+pin": {"environment": JEMALLOC | NO_DECAY | PIN},
    "jemalloc+chunked": {"environment": JEMALLOC | NO_DECAY, "options": ["--loss", "chunked"]},
    "jemalloc+gqa": {"environment": JEMALLOC | NO_DECAY, "options": ["--enable-gqa"]},
    "jemalloc+loop": {"environment": JEMALLOC | NO_DECAY, "options": ["--experts", "loop"]},
    "jemalloc+autocast": {"environment": JEMALLOC | NO_DECAY, "dtype": "autocast"},
}
# transformers' own model, with each of its ways to compute experts, and the best of them compiled.
TRANSFORMERS = [f"transformers {how}" for how in ("eager", "grouped_mm", "batched_mm")]
VARIANTS |= {name: {"environment": JEMALLOC | NO_DECAY, "options": ["--transformers", name.split()[1]]} for name in TRANSFORMERS}
VARIANTS["compile transformers"] = {"environment": JEMALLOC | NO_DECAY, "options": ["--compile", "--transformers", "grouped_mm"]}


def fits_batched(name):
    """batched_mm copies the weights of every row and keeps them for backward; a kernel ends what takes all memory."""
    case = cases.CASES[name]
    s = case["sizes"]
    copied = s["layers"] * case["batch"] * case["tokens"] * s["chosen"] * 3 * s["width"] * s["inner"] * 4
    return copied < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2


def best(case, dtype):
    """float32: the fastest. bfloat16: the fastest, and the one that keeps float32 weights as Echelon does."""
    if case.startswith(("mixture", "tiny-mixture")):
        peers = ["jemalloc", "jemalloc+loop", *TRANSFORMERS[: 3 if fits_batched(case) else 2]]
        return peers + (["jemalloc+autocast"] if dtype == "bfloat16" else [])
    return ["jemalloc"] if dtype == "float32" else ["jemalloc", "jemalloc+autocast"]


def compiled(case):
    return ["compile", "compile transformers"] if case.startswith("mixture") else ["compile"]


# What a parameter costs: 18 bytes, of which 4 are its master weight, 4 its gradient and 8 its moments; or 10 with half of each. The peer's with bfloat16 weights,
# which has no masters, costs 8.
ECHELON = {
    "echelon": [],
    "echelon lean": ["--training.grad_dtype=bfloat16", "--optimizer.moments_dtype=bfloat16", "--optimizer.store_param_remainders=true"],
}


def of_echelon(dtype):
    """float32: as it comes. bfloat16: as it comes, and with gradients and moments in bfloat16, as the peer's first has them."""
    return ["echelon"] if dtype == "float32" else list(ECHELON)
