"""Echelon and PyTorch in turns: each turn is one process that trains the same model from the same weights on the same tokens for a few steps.

A turn's step time is the median over its steps from the third on; a side's is the median over all its turns' steps. The ratio is PyTorch's over Echelon's,
with the range of the ratios of turns that stand side by side. Losses of every step must agree, or there is not a table.
"""

import argparse
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import cases
import knobs
import rows

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIRST_TIMED_STEP = 3
# Of the loss. In bfloat16 the sides round at different places.
LOSS_TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2, "autocast": 2e-2}


def main():
    a = parse()
    cache = pathlib.Path(a.work)
    machine = describe_machine(a)
    results = []
    for name in a.case:
        folder = make_case(a, name, cache)
        for dtype in a.dtype:
            results.append(compare(a, name, dtype, folder, machine))
            print(table([results[-1]], machine, header=len(results) == 1), flush=True)
            write(a, machine, results)


def write(a, machine, results):
    """What is known so far: a run takes an hour, and may be ended before."""
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({"machine": machine, "results": results}, indent=1))
    if a.row and not a.no_echelon:
        page = pathlib.Path(a.row)
        ours = next(iter(results[0]["sides"].values()))
        page.write_text(rows.updated(page.read_text(), ours["turns"][0]["kind"], results))


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--case", nargs="+", default=["small", "gpt2-b1", "gpt2-b4", "llama"], choices=cases.CASES)
    p.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    p.add_argument("--compile", action="store_true", help="more sides: PyTorch with torch.compile")
    p.add_argument("--no-echelon", action="store_true")
    p.add_argument("--variants", nargs="*", help="PyTorch with each of these settings of knobs.py, instead of the best")
    p.add_argument("--row", help="write the ratios into this page's table by kind of processor, which docs/results/performance.md has")
    add_common_options(p)
    return p.parse_args()


def number_of_steps(text):
    steps = int(text)
    if steps < FIRST_TIMED_STEP:
        raise argparse.ArgumentTypeError(f"{steps} has no timed step (use {FIRST_TIMED_STEP})")
    return steps


def add_common_options(p):
    p.add_argument("--steps", type=number_of_steps, default=5, help="steps of a turn; those from the third on are timed")
    p.add_argument("--turns", type=int, default=3, help="processes per side and row")
    p.add_argument("--echelon", default=str(ROOT / "build/release/echelon"))
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--launcher", default="", help="a command that is put before every process, such as taskset or one that keeps the machine quiet")
    p.add_argument("--max-others", type=float, default=0.04, help="a turn in which other processes took a larger share of the processor is made again")
    p.add_argument("--attempts", type=int, default=3, help="at most so often")
    p.add_argument("--work", default=str(pathlib.Path.home() / ".cache/echelon/against_pytorch"), help="models and tokens are kept here")
    p.add_argument("--json", help="write everything measured to this file")


def make_case(a, name, cache):
    folder = cache / name
    if not (folder / "model.safetensors").exists():
        cases.prepare(cases.CASES[name], folder)
        subprocess.run([a.python, HERE / "peer.py", "--case", name, "--folder", folder, "--make-weights"], check=True)
    return folder


def compare(a, name, dtype, folder, machine):
    case = cases.CASES[name]
    sides = {}
    for ours in [] if a.no_echelon else knobs.of_echelon(dtype):
        sides[ours] = lambda o=ours: echelon_turn(a, case, dtype, folder, knobs.ECHELON[o])
    for variant in a.variants or knobs.best(name, dtype):
        sides[f"pytorch {variant}"] = lambda v=variant: pytorch_turn(a, name, dtype, folder, v)
    for variant in knobs.compiled(name) if a.compile else []:
        sides[f"pytorch {variant}"] = lambda v=variant: pytorch_turn(a, name, dtype, folder, v)
    turns = {side: [] for side in sides}
    for _ in range(a.turns):
        for side, turn in sides.items():
            turns[side].append(undisturbed(a, f"{name} {dtype} {side}", turn))
    check_losses(name, dtype, turns)
    return summary(case, name, dtype, turns, machine)


def undisturbed(a, label, turn):
    """The turn, anew while others took more of the machine than they may; after some attempts the one that was disturbed least."""
    attempts = []
    for _ in range(a.attempts):
        attempts.append(turn())
        last = attempts[-1]
        say(f"  {label}: {last['seconds']:.3f} s, others took {last['others']:.1%} of the processor")
        if last["others"] <= a.max_others:
            return last
    return min(attempts, key=lambda t: t["others"])


def say(line):
    print(line, file=sys.stderr, flush=True)


def echelon_turn(a, case, dtype, folder, options=()):
    with tempfile.TemporaryDirectory() as output:
        config = pathlib.Path(output, "config.toml")
        config.write_text(cases.echelon_config(case, dtype, folder, a.steps) + f'[output]\ndir = "{output}"\n')
        # OPENBLAS_CORETYPE may be set for others; Echelon knows the kernels that suit.
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        turn = run(a, [a.echelon, "train", str(config), *options], environment)
        steps = [json.loads(line) for line in pathlib.Path(output, "metrics.jsonl").read_text().splitlines()]
    return turn | {"kind": rows.kind_of(turn.pop("output"))} | finish(a, [s for s in steps if "step_seconds" in s])


def pytorch_turn(a, name, dtype, folder, variant):
    setting, environment = knobs.VARIANTS[variant], peer_environment(a.threads, variant)
    dtype = setting.get("dtype", dtype) if dtype == "bfloat16" else dtype
    options = ["--case", name, "--folder", str(folder), "--dtype", dtype, "--steps", str(a.steps), "--threads", str(a.threads)]
    turn = run(a, [a.python, str(HERE / "peer.py"), *options, *setting.get("options", [])], environment)
    lines = [json.loads(line) for line in turn.pop("output").splitlines() if line.startswith("{")]
    return turn | {"start": lines[0]} | finish(a, lines[1:])


# What limits PyTorch's libraries as ECHELON_INSTRUCTION_SET=avx2 limits Echelon.
AVX2_ALONE = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def peer_environment(threads, variant):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "KMP_", "GOMP_", "MKL_", "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"))}
    if os.environ.get("ECHELON_INSTRUCTION_SET") == "avx2":
        inherited |= AVX2_ALONE
    setting = knobs.VARIANTS[variant].get("environment", {})
    # The loader goes on without a library that it does not find, and PyTorch would be slow.
    if "LD_PRELOAD" in setting and not pathlib.Path(setting["LD_PRELOAD"]).exists():
        raise SystemExit(f"PyTorch's setting '{variant}' needs {setting['LD_PRELOAD']}, which is not there: run scripts/install interop")
    return inherited | {"OMP_NUM_THREADS": str(threads)} | setting


def run(a, command, environment):
    """What measured.py says of the process, and its output."""
    with tempfile.NamedTemporaryFile() as result, tempfile.TemporaryFile() as errors:
        measured = [*shlex.split(a.launcher), sys.executable, str(HERE / "measured.py"), result.name]
        # The environment is for the command alone: a launcher or this interpreter would not like another allocator.
        command = [*measured, "env", "-i", *(f"{k}={v}" for k, v in environment.items()), *command]
        output = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors).stdout.decode()
        said = pathlib.Path(result.name).read_text()
        if not said or json.loads(said)["exit"] != 0:
            errors.seek(0)
            raise SystemExit(f"{shlex.join(command)} failed: {said or 'it was ended'}\n{output[-2000:]}\n{errors.read().decode()[-4000:]}")
    return {"output": output} | json.loads(said)


def finish(a, steps):
    timed = [s["step_seconds"] for s in steps if s["step"] >= FIRST_TIMED_STEP]
    return {"losses": [s["loss"] for s in steps], "norms": [s["grad_norm"] for s in steps], "timed": timed, "seconds": statistics.median(timed)}


def check_losses(name, dtype, turns):
    """Two benchmarks of different models would be worthless: the losses and the first steps' gradient norms must be the same numbers."""
    first = next(iter(turns.values()))[0]
    for side, all_turns in turns.items():
        for turn in all_turns:
            for key in ("losses", "norms"):
                errors = [abs(x - y) / abs(y) for x, y in zip(turn[key], first[key])][: FIRST_TIMED_STEP - 1 if key == "norms" else None]
                limit = LOSS_TOLERANCE[dtype] * (1 if key == "losses" else 10)
                if max(errors) > limit:
                    raise SystemExit(f"{name} {dtype}: {key} of {side} differ by {max(errors):.1e} (more than {limit}): {turn[key]} and {first[key]}")
            turn["largest_loss_error"] = max(abs(x - y) / abs(y) for x, y in zip(turn["losses"], first["losses"]))


def summary(case, name, dtype, turns, machine):
    result = {"case": name, "dtype": dtype, "sides": {}}
    for side, all_turns in turns.items():
        seconds = statistics.median([s for t in all_turns for s in t["timed"]])
        result["sides"][side] = {
            "step_seconds": seconds,
            "tokens_per_second": case["batch"] * case["tokens"] / seconds,
            "tflops": cases.flops_per_step(case) / seconds / 1e12,
            "share_of_peak": cases.flops_per_step(case) / seconds / machine["fma_peak_flops"],
            "peak_bytes": max(t["peak_bytes"] for t in all_turns),
            "import_bytes": all_turns[0].get("start", {}).get("rss_after_import_bytes", 0),
            "others": max(t["others"] for t in all_turns),
            "turns": all_turns,
        }
    ours = [side for side in turns if side in knobs.ECHELON]
    for side in turns.keys() - ours:
        result["sides"][side]["ratios"] = [beside(result["sides"][side], result["sides"][o]) for o in ours]
    return result


def beside(peer, ours):
    """The peer's step time over ours, with the range of the turns that stand side by side, and our memory over the peer's."""
    ratios = [p["seconds"] / e["seconds"] for p, e in zip(peer["turns"], ours["turns"])]
    return {"speed": peer["step_seconds"] / ours["step_seconds"], "range": [min(ratios), max(ratios)], "memory": ours["peak_bytes"] / peer["peak_bytes"]}


def table(results, machine, header=True):
    lines = []
    if header:
        lines += [heading(machine), "",
                  "| model | dtype | side | s/step | tokens/s | TFLOP/s | of FMA peak | peak memory | speed of Echelon | memory of Echelon |",
                  "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in results:
        for side, s in r["sides"].items():
            gib = f"{s['peak_bytes'] / 2**30:.2f} GiB" + (f" (import {s['import_bytes'] / 2**30:.2f})" if s["import_bytes"] else "")
            ratio = ", ".join(f"{b['speed']:.2f}x ({b['range'][0]:.2f}-{b['range'][1]:.2f})" for b in s.get("ratios", []))
            memory = ", ".join(f"{b['memory']:.2f}x" for b in s.get("ratios", []))
            lines.append(f"| {cases.DESCRIPTIONS[r['case']]} | {r['dtype']} | {side} | {s['step_seconds']:.3f} | {s['tokens_per_second']:,.0f} | "
                         f"{s['tflops']:.3f} | {s['share_of_peak']:.0%} | {gib} | {ratio} | {memory} |")  # fmt: skip
    return "\n".join(lines)


def heading(machine):
    return (f"{machine['date']}, {machine['processor']}, {machine['threads']} threads, measured peak of float32 multiply-adds "
            f"{machine['fma_peak_flops'] / 1e9:.0f} GFLOP/s; {machine['echelon']}; PyTorch {machine['torch']}")  # fmt: skip


def describe_machine(a):
    processor = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    version = subprocess.run([a.python, "-c", "import importlib.metadata as m; print(m.version('torch'))"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    return {"date": time.strftime("%Y-%m-%d"), "processor": processor, "cores": os.cpu_count(), "threads": a.threads, "torch": version,
            "echelon": f"Echelon {commit}", "kernel": platform.release(), "fma_peak_flops": fma_peak(a)}  # fmt: skip


def fma_peak(a):
    program = pathlib.Path(a.work, "fma_peak")
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-O3", "-march=native", "-fopenmp", "-o", program, HERE / "fma_peak.c"], check=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(a.threads)}
    command = [*shlex.split(a.launcher), program]
    return max(float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout) for _ in range(3))


if __name__ == "__main__":
    main()
