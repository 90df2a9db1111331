"""The peer's settings. The table of what each does to the step is in docs/performance.md; `best` is what came out of it."""

LIB = "/usr/lib/x86_64-linux-gnu/"
# Freed blocks stay in the process instead of going back to the system, so that no step faults the same pages in again.
KEEP = {"MALLOC_MMAP_THRESHOLD_": "17179869184", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "268435456"}
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
PIN = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}

VARIANTS = {
    "plain": {},
    "keep": {"environment": KEEP},
    "keep+thp": {"environment": KEEP | {"THP_MEM_ALLOC_ENABLE": "1"}},
    "keep+huge": {"environment": KEEP | HUGE},
    "keep+huge+pin": {"environment": KEEP | HUGE | PIN},
    "tcmalloc": {"environment": {"LD_PRELOAD": LIB + "libtcmalloc_minimal.so.4"}},
    "jemalloc": {"environment": {"LD_PRELOAD": LIB + "libjemalloc.so.2", "MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto,dirty_decay_ms:9000000000,muzzy_decay_ms:9000000000,thp:always"}},
    "compile": {"environment": KEEP | HUGE, "options": ["--compile"]},
}


def best(case, dtype):
    return ["keep+huge"]
