"""Echelon and PyTorch in turns on one GPU: each turn is one process that trains the same model with random tokens for some steps.

A turn's step time is the median over its steps from the fourth on, a side's the median over all its turns' steps; the ratio is PyTorch's over the faster of
Echelon's, with and without CUDA graphs. The first loss of all must be that of a model that knows nothing, ln V, within 3 %. `echelon bench` measures the GPU before,
and its machine file gives the matrix rate and the simulator's prediction. Cases that the plan says do not fit are left out, and said so. --dry-run does all
of it with tiny models on the emulated device and PyTorch on a processor: times mean nothing then.
"""

import argparse
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import cases

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIRST_TIMED_STEP = 4
PEAK_BFLOAT16 = 989.4e12  # H100 and H200, NVIDIA's data sheet, dense


def main():
    a = parse()
    a.out.mkdir(parents=True, exist_ok=True)
    machine = measure_machine(a)
    results = []
    for name in a.case:
        results.append(compare(a, name, machine))
        (a.out / "results.json").write_text(json.dumps({"machine": machine, "results": results}, indent=1))
        print(table([results[-1]], header=len(results) == 1), flush=True)
    (a.out / "table.md").write_text(heading(a, machine) + "\n\n" + table(results) + "\n")
    failed = [f"{r['case']} {side}" for r in results for side, s in r["sides"].items() if side.startswith("echelon") and "failure" in s]
    if failed or not any(r["sides"] for r in results):
        raise SystemExit(f"failed: {', '.join(failed)}" if failed else "no case fits")


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--case", nargs="+", choices=cases.ALL_CASES, help="default: all of them, or the tiny ones of a dry run")
    p.add_argument("--turns", type=int, default=3, help="processes per side and case")
    p.add_argument("--steps", type=int, default=13, help="of a turn; those from the fourth on are timed")
    p.add_argument("--echelon", default=None, help="default: build/cuda/echelon, of a dry run build/release/echelon")
    p.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch")
    p.add_argument("--no-pytorch", action="store_true")
    p.add_argument("--machine", help="a machine file, instead of a new one by echelon bench")
    p.add_argument("--out", type=pathlib.Path, default=None, help="folder of the results; default: out/gpu")
    p.add_argument("--dry-run", action="store_true")
    a = p.parse_args()
    a.case = a.case or list(cases.DRY_CASES if a.dry_run else cases.CASES)
    a.out = (a.out or ROOT / "out" / ("gpu-dry-run" if a.dry_run else "gpu")).resolve()
    a.echelon = a.echelon or str(ROOT / ("build/release/echelon" if a.dry_run else "build/cuda/echelon"))
    if a.dry_run:
        os.environ.setdefault("ECHELON_CUDA_PLUGIN", str(pathlib.Path(a.echelon).resolve().parent / "libechelon_cuda_emulated.so"))
        a.turns, a.steps = min(a.turns, 1), min(a.steps, 5)
    return a


def measure_machine(a):
    """The machine file, and the rate of its largest bfloat16 product."""
    path = a.out / "machine.toml"
    if a.machine:
        return machine_of(a.machine)
    sizes = ["--largest-size=32", "--seconds=0.01", "--rounds=1"] if a.dry_run else []
    run([a.echelon, "bench", "--device=cuda", f"--output={path}", *sizes])
    return machine_of(path)


def machine_of(path):
    device = tomllib.loads(pathlib.Path(path).read_text())["node"][0]["device"]
    products = device["formats"]["bfloat16"].get("points", [])
    fastest = {"matrix_flops": max(p["tflops"] for p in products) * 1e12} if products else {}
    return {"file": str(path), "name": device["name"]} | fastest


def compare(a, name, machine):
    case = cases.ALL_CASES[name]
    result = {"case": name, "sides": {}, "flops_per_step": cases.flops_per_step(case), "parameters": cases.num_parameters(case)}
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder, "tokens")
        cases.write_tokens(cases.sizes_of(case)["vocab"], cases.NUM_SEQUENCES_OF_DATA * case["tokens"] + 1, prefix)
        config = pathlib.Path(folder, "config.toml")
        config.write_text(cases.echelon_config(case, a.steps, prefix, folder, machine["file"]))
        (a.out / f"{name}.toml").write_text(config.read_text())
        simulated = json.loads(run([a.echelon, "simulate", str(config), f"--machine={machine['file']}", "--json"]))
        result["simulated"] = {k: simulated[k] for k in ("predicted_seconds", "predicted_memory_bytes", "fits")}
        if not simulated["fits"]:
            say(f"  {name}: the plan's {simulated['predicted_memory_bytes'] / 2**30:.1f} GiB do not fit; left out")
            return result
        sides = {"echelon": lambda: echelon_turn(a, config, folder), "echelon graphs": lambda: echelon_turn(a, config, folder, "--training.cuda_graphs=true")}
        for weights in [] if a.no_pytorch else ["bfloat16", "autocast"]:
            sides[f"pytorch {weights}"] = lambda w=weights: pytorch_turn(a, name, w)
        turns = {side: [] for side in sides}
        for _ in range(a.turns):
            for side, turn in sides.items():
                turns[side].append(attempt(f"{name} {side}", turn))
    for side, all_turns in turns.items():
        result["sides"][side] = summary(case, all_turns, machine)
    return result


def attempt(label, turn):
    """A turn that fails, for want of memory say, is told and leaves its side out; the others go on."""
    try:
        done = turn()
    except subprocess.CalledProcessError as error:
        say(f"  {label} failed: {(error.stderr or '')[-600:].strip()}")
        return {"failure": (error.stderr or "")[-4000:]}
    say(f"  {label}: {done['seconds']:.4f} s")
    return done


def echelon_turn(a, config, folder, *settings):
    metrics = pathlib.Path(folder, "metrics.jsonl")
    metrics.unlink(missing_ok=True)
    with WatchedMemory() as memory:
        said = run([a.echelon, "train", str(config), "--json", *settings])
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    last = json.loads(said.splitlines()[-1])
    return finish([s for s in steps if "step_seconds" in s]) | {"driver_peak_bytes": memory.peak_bytes, "predicted": last["predicted_step_seconds"]}


def pytorch_turn(a, name, weights):
    device = ["--device=cpu", "--no-compile"] if a.dry_run else []
    with WatchedMemory() as memory:
        said = run([a.python, str(HERE / "peer.py"), "--case", name, "--weights", weights, f"--steps={a.steps}", *device])
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return finish(lines[1:]) | {"start": lines[0], "driver_peak_bytes": memory.peak_bytes}


def finish(steps):
    timed = [s["step_seconds"] for s in steps if s["step"] >= FIRST_TIMED_STEP]
    return {"losses": [s["loss"] for s in steps], "timed": timed, "seconds": statistics.median(timed), "plan_bytes": steps[-1]["memory_peak_bytes"]}


def summary(case, turns, machine):
    done = [t for t in turns if "failure" not in t]
    if not done:
        return {"failure": turns[0]["failure"], "turns": turns}
    ln_v = math.log(cases.sizes_of(case)["vocab"])
    for t in done:
        if abs(t["losses"][0] / ln_v - 1) > 0.03:
            raise SystemExit(f"the first loss is {t['losses'][0]}, but ln V = {ln_v}: that is another model")
    seconds = statistics.median([s for t in done for s in t["timed"]])
    rate = cases.flops_per_step(case) / seconds
    result = {"speed": case["batch"] * case["tokens"] / seconds, "step_seconds": seconds, "mfu": rate / PEAK_BFLOAT16, "turns": turns}
    result |= {"plan_bytes": max(t["plan_bytes"] for t in done), "driver_peak_bytes": max(t["driver_peak_bytes"] for t in done)}
    if "matrix_flops" in machine:
        result["of_matrix_rate"] = rate / machine["matrix_flops"]
    if "predicted" in done[0]:
        result |= {"predicted": done[0]["predicted"], "prediction_error": done[0]["predicted"] / seconds - 1}
    return result


class WatchedMemory:
    """The most bytes that the driver says are used on GPU 0, every tenth of a second; 0 where there is no nvidia-smi."""

    def __enter__(self):
        self.peak_bytes, self.ended = 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def watch(self):
        command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.ended.wait(0.1):
            try:
                self.peak_bytes = max(self.peak_bytes, int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) << 20)
            except (OSError, subprocess.CalledProcessError, ValueError):
                return


def table(results, header=True):
    lines = []
    if header:
        lines = ["| case | side | tokens/s | ms/step | MFU of 989 TFLOP/s | of the matrix rate | memory, GiB (driver) | predicted, ms | speed of Echelon |",
                 "|---|---|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for r in results:
        if not r["sides"]:
            lines.append(f"| {r['case']} | | does not fit: {r['simulated']['predicted_memory_bytes'] / 2**30:.1f} GiB | | | | | {1e3 * r['simulated']['predicted_seconds']:.2f} | |")
            continue
        ours = min((s["step_seconds"] for side, s in r["sides"].items() if side.startswith("echelon") and "step_seconds" in s), default=None)
        for side, s in r["sides"].items():
            if "failure" in s:
                lines.append(f"| {r['case']} | {side} | failed | | | | | | |")
                continue
            matrix = f"{s['of_matrix_rate']:.1%}" if "of_matrix_rate" in s else ""
            predicted = f"{1e3 * s['predicted']:.2f} ({s['prediction_error']:+.1%})" if "predicted" in s else ""
            ratio = f"{s['step_seconds'] / ours:.2f}x" if side.startswith("pytorch") and ours else ""
            lines.append(f"| {r['case']} | {side} | {s['speed']:,.0f} | {1e3 * s['step_seconds']:.2f} | {s['mfu']:.1%} | {matrix} | "
                         f"{s['plan_bytes'] / 2**30:.2f} ({s['driver_peak_bytes'] / 2**30:.2f}) | {predicted} | {ratio} |")  # fmt: skip
    return "\n".join(lines)


def heading(a, machine):
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    rate = f", {machine['matrix_flops'] / 1e12:.1f} TFLOP/s in its fastest bfloat16 product" if "matrix_flops" in machine else ""
    dry = "A DRY RUN on the emulated device: no time in it means anything. " if a.dry_run else ""
    return f"{dry}{time.strftime('%Y-%m-%d')}, {machine['name']}{rate}; Echelon {commit}; {shlex.join(sys.argv)}"


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr + done.stdout[-2000:])
    return done.stdout


def say(line):
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failure:
        raise SystemExit(f"{shlex.join(map(str, failure.cmd))} failed:\n{failure.stderr[-3000:]}") from None
