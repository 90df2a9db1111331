"""Echelon and PyTorch in turns on one GPU: each turn is one process that trains the same model with random tokens for some steps.

Neither side is deterministic: PyTorch is not unless it is asked to be, and Echelon then times products and lets cuDNN form attention's gradients; which
kernels formed attention is in the results. A turn's step time is the median over its steps from the fourth on, a side's the median over all its turns'
steps; the ratio is PyTorch's over Echelon's with the same
state: autocast's over the faster of those with and without CUDA graphs, bfloat16's over `echelon bfloat16`, whose gradients and moments are bfloat16, too. Weights are drawn with a standard deviation of 0.02, so the first loss must be that of a model that knows nothing,
ln V + 0.02^2 D / 2, within 2 % and what chance explains, and that of PyTorch be Echelon's within 1 %. `echelon bench` measures the GPU before, and its machine
file gives the matrix rate, the data sheet's peak and the simulator's prediction. Cases that the plan says do not fit are left out, and said so. What fails is told in the table, and
the rest goes on; table.md and results.json are written after every turn. --dry-run does all of it with tiny models on the emulated device and PyTorch on a
processor: times mean nothing then.
"""

import sys

if sys.version_info < (3, 10):
    raise SystemExit(f"{sys.argv[0]} needs Python 3.10 or newer, and this is {sys.version.split()[0]}")

import argparse
import json
import math
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import tempfile
import time

import cases
import gpu

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FIRST_TIMED_STEP = 4


def main():
    a = parse()
    a.out.mkdir(parents=True, exist_ok=True)
    table = Table(a, measure_machine(a))
    table.write()
    for name in a.case:
        compare(a, name, table)
        print(table.rows_of(table.results[-1]), flush=True)
    failed = [f"{r['case']} {side}".strip() for r in table.results for side, s in summaries(r, table.machine).items() if "failure" in s and "pytorch" not in side]
    if failed or not any(r["turns"] for r in table.results):
        raise SystemExit(f"failed: {', '.join(failed)}" if failed else "no case fits")


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--case", nargs="+", choices=cases.ALL_CASES, help="default: all of them, or the tiny ones of a dry run")
    p.add_argument("--turns", type=int, default=3, help="processes per side and case")
    p.add_argument("--steps", type=int, default=13, help="of a turn; those from the fourth on are timed")
    p.add_argument("--turn-seconds", type=float, default=1800, help="a turn that takes longer is ended, and has failed")
    p.add_argument("--echelon", default=None, help="default: build/cuda/echelon, of a dry run build/release/echelon")
    p.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch")
    p.add_argument("--no-pytorch", action="store_true")
    p.add_argument("--machine", help="a machine file, or the name of a shipped one, instead of a new one by echelon bench")
    p.add_argument("--out", type=pathlib.Path, default=None, help="folder of the results; default: out/gpu")
    p.add_argument("--dry-run", action="store_true")
    a = p.parse_args()
    if a.steps < FIRST_TIMED_STEP or a.turns < 1:
        p.error(f"--steps = {a.steps} and --turns = {a.turns} time nothing (use --steps={max(a.steps, FIRST_TIMED_STEP)} --turns={max(a.turns, 1)})")
    a.case = a.case or list(cases.DRY_CASES if a.dry_run else cases.CASES)
    a.out = (a.out or ROOT / "out" / ("gpu-dry-run" if a.dry_run else "gpu")).resolve()
    a.echelon = a.echelon or str(ROOT / ("build/release/echelon" if a.dry_run else "build/cuda/echelon"))
    if a.dry_run:
        os.environ.setdefault("ECHELON_CUDA_PLUGIN", str(pathlib.Path(a.echelon).resolve().parent / "libechelon_cuda_emulated.so"))
        a.turns, a.steps = min(a.turns, 1), min(a.steps, 5)
    return a


def measure_machine(a):
    """What is known of the GPU: `file`, `name`, `peak_flops` of its data sheet and `matrix_flops` of its fastest product, both in bfloat16; or why not."""
    try:
        if a.machine:
            return machine_of(a.machine)
        path = a.out / "machine.toml"
        sizes = ["--largest-size=32", "--seconds=0.01", "--rounds=1"] if a.dry_run else []
        run([a.echelon, "bench", "--device=cuda", f"--output={path}", *sizes], 3600)
        return machine_of(path)
    except Exception as error:
        say(f"the GPU was not measured: {words_of(error)}")
        return {"failure": words_of(error)}


def machine_of(file):
    path = pathlib.Path(file) if pathlib.Path(file).exists() else ROOT / "machines" / f"{file}.toml"
    tables = tables_of(path.read_text())
    bfloat16, source = tables.get("node.device.formats.bfloat16", {}), tables[""].get("source", "")
    machine = {"file": str(path), "name": tables["node.device"]["name"].strip('"')}
    if "fastest_tflops" in bfloat16:
        machine["matrix_flops"] = float(bfloat16["fastest_tflops"]) * 1e12
    if "peak_tflops" in bfloat16 and "no peaks are known" not in source:  # else it is the fastest product
        machine["peak_flops"] = float(bfloat16["peak_tflops"]) * 1e12
    return machine


def tables_of(text):
    """A machine file's keys that stand in one line, with their values as text, by table; of several tables of a name the first. (tomllib wants Python 3.11.)"""
    tables = {"": {}}
    current = tables[""]
    for line in text.splitlines():
        if header := re.match(r"\[+([\w.]+)\]+", line):
            current = {}
            tables.setdefault(header[1], current)
        elif key := re.match(r"""(\w+) *= *("[^"]*"|[^#]*)""", line):
            current[key[1]] = key[2].strip()
    return tables


def compare(a, name, table):
    case = cases.ALL_CASES[name]
    result = {"case": name, "turns": {}, "flops_per_step": cases.flops_per_step(case), "parameters": cases.num_parameters(case)}
    table.results.append(result)
    try:
        with tempfile.TemporaryDirectory() as folder:
            take_turns(a, case, result, pathlib.Path(folder), table)
    except Exception as error:
        say(f"  {name} failed: {words_of(error)}")
        result["failure"] = words_of(error)
    table.write()


def take_turns(a, case, result, folder, table):
    name, file = result["case"], table.machine.get("file", "")
    cases.write_tokens(cases.sizes_of(case)["vocab"], cases.NUM_SEQUENCES_OF_DATA * case["tokens"] + 1, folder / "tokens")
    config = folder / "config.toml"
    config.write_text(cases.echelon_config(case, a.steps, folder / "tokens", folder, file, deterministic=False))
    (a.out / f"{name}.toml").write_text(config.read_text())
    if file:
        simulated = json.loads(run([a.echelon, "simulate", config, f"--machine={file}", "--json"], a.turn_seconds))
        result["simulated"] = {k: simulated[k] for k in ("predicted_seconds", "predicted_memory_bytes", "fits")}
        if not simulated["fits"]:
            say(f"  {name}: the plan's {simulated['predicted_memory_bytes'] / 2**30:.1f} GiB do not fit; left out")
            return
    settings = {"echelon": [], "echelon graphs": ["--training.cuda_graphs=true"], "echelon bfloat16": cases.AS_BFLOAT16_PYTORCH}
    sides = {side: lambda s=s: echelon_turn(a, config, folder, *s) for side, s in settings.items()}
    for weights in [] if a.no_pytorch else ["bfloat16", "autocast"]:
        sides[f"pytorch {weights}"] = lambda w=weights: pytorch_turn(a, name, w)
    for _ in range(a.turns):
        for side, turn in sides.items():
            done = result["turns"].setdefault(side, [])
            if any("failure" in t for t in done):
                continue  # what lacked memory once lacks it again
            done.append(attempt(f"{name} {side}", turn))
            table.write()


def attempt(label, turn):
    """A turn that fails, for want of memory say, is told and ends its side of the case; the others go on."""
    try:
        done = turn()
    except Exception as error:
        say(f"  {label} failed: {words_of(error)}")
        return {"failure": words_of(error), "stderr": (getattr(error, "stderr", None) or "")[-4000:]}
    say(f"  {label}: {done['seconds']:.4f} s")
    return done


def echelon_turn(a, config, folder, *settings):
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    with gpu.WatchedMemory() as memory:
        said = run([a.echelon, "train", config, "--json", *settings], a.turn_seconds)
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    last = json.loads(said.splitlines()[-1])
    predicted = {"predicted": last["predicted_step_seconds"]} if last.get("predicted_step_seconds") else {}
    choices = {"device_choices": last["device_choices"]} if "device_choices" in last else {}
    return finish([s for s in steps if "step_seconds" in s]) | {"driver_peak_bytes": memory.peak_bytes} | predicted | choices


def pytorch_turn(a, name, weights):
    device = ["--device=cpu", "--no-compile"] if a.dry_run else []
    with gpu.WatchedMemory() as memory:
        said = run([a.python, HERE / "peer.py", "--case", name, "--weights", weights, f"--steps={a.steps}", *device], a.turn_seconds)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return finish(lines[1:]) | {"start": lines[0], "driver_peak_bytes": memory.peak_bytes}


def finish(steps):
    timed = [s["step_seconds"] for s in steps if s["step"] >= FIRST_TIMED_STEP]
    return {"losses": [s["loss"] for s in steps], "timed": timed, "seconds": statistics.median(timed), "plan_bytes": steps[-1]["memory_peak_bytes"]}


def summaries(result, machine):
    """By side what its turns say together, or the first failure among them; of a case that failed as a whole one side without a name."""
    if "failure" in result:
        return {side: summary(result, turns, machine) for side, turns in result["turns"].items()} | {"": {"failure": result["failure"]}}
    sides = {side: summary(result, turns, machine) for side, turns in result["turns"].items()}
    ours = next((s["first_loss"] for side, s in sides.items() if side.startswith("echelon") and "first_loss" in s), None)
    _, chance = first_loss_of(cases.ALL_CASES[result["case"]])
    for side, s in sides.items():
        if ours and abs(s.get("first_loss", ours) - ours) > 0.01 * ours + chance:
            sides[side] = {"failure": f"its first loss is {s['first_loss']:.4f}, but Echelon's is {ours:.4f}: that is another model"}
    return sides


def summary(result, turns, machine):
    case, done = cases.ALL_CASES[result["case"]], [t for t in turns if "failure" not in t]
    failure = next((t["failure"] for t in turns if "failure" in t), None)
    if not done:
        return {"failure": failure or "no turn ended"}
    expected, chance = first_loss_of(case)
    first_loss = done[0]["losses"][0]
    if not abs(first_loss - expected) <= 0.02 * expected + chance:
        return {"failure": f"its first loss is {first_loss:.4f}, but that of a model that knows nothing is {expected:.4f}: that is another model"}
    seconds = statistics.median([s for t in done for s in t["timed"]])
    rate = result["flops_per_step"] / seconds
    said = {"speed": case["batch"] * case["tokens"] / seconds, "step_seconds": seconds, "first_loss": first_loss}
    said |= {"plan_bytes": max(t["plan_bytes"] for t in done), "driver_peak_bytes": max(t["driver_peak_bytes"] for t in done)}
    said |= {name: rate / machine[of] for name, of in (("mfu", "peak_flops"), ("of_matrix_rate", "matrix_flops")) if of in machine}
    if "predicted" in done[0]:
        said |= {"predicted": done[0]["predicted"], "prediction_error": done[0]["predicted"] / seconds - 1}
    return said | ({"failed_later": failure} if failure else {})


def first_loss_of(case):
    """Its mean, since logits of normed activations and weights of standard deviation s have the variance s^2 D; and five standard deviations of it."""
    sizes, variance = cases.sizes_of(case), 0.02**2 * cases.sizes_of(case)["width"]
    return math.log(sizes["vocab"]) + variance / 2, 5 * math.sqrt(variance / (case["batch"] * case["tokens"]))


class Table:
    """What was found so far, in a.out: results.json with every turn, and table.md."""

    def __init__(self, a, machine):
        self.a, self.machine, self.results = a, machine, []

    def write(self):
        of_all = [r | {"sides": summaries(r, self.machine)} for r in self.results]
        replace(self.a.out / "results.json", json.dumps({"machine": self.machine, "results": of_all}, indent=1))
        peak = f"MFU of {self.machine['peak_flops'] / 1e12:.0f} TFLOP/s" if "peak_flops" in self.machine else "MFU (this GPU's peak is not known)"
        lines = [self.heading(), "",
                 f"| case | side | tokens/s | ms/step | {peak} | of the matrix rate | memory, GiB (driver) | predicted, ms | speed of Echelon |",
                 "|---|---|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
        replace(self.a.out / "table.md", "\n".join(lines + [self.rows_of(r) for r in self.results]) + "\n")

    def rows_of(self, r):
        if "simulated" in r and not r["simulated"]["fits"]:
            needs = f"does not fit: {r['simulated']['predicted_memory_bytes'] / 2**30:.1f} GiB"
            return f"| {r['case']} | | {needs} | | | | | {1e3 * r['simulated']['predicted_seconds']:.2f} | |"
        sides = summaries(r, self.machine) or {"": {"failure": "no turn has ended yet"}}
        return "\n".join(self.row(r["case"], side, s, ours_for(side, sides)) for side, s in sides.items())

    def row(self, case, side, s, ours):
        if "failure" in s:
            return f"| {case} | {side} | failed: {in_cell(s['failure'])} | | | | | | |"
        share, matrix = (f"{s[key]:.1%}" if key in s else "" for key in ("mfu", "of_matrix_rate"))
        predicted = f"{1e3 * s['predicted']:.2f} ({s['prediction_error']:+.1%})" if "predicted" in s else ""
        ratio = f"{s['step_seconds'] / ours:.2f}x" if side.startswith("pytorch") and ours else ""
        later = f"; a later turn failed: {in_cell(s['failed_later'])}" if "failed_later" in s else ""
        return (f"| {case} | {side}{later} | {s['speed']:,.0f} | {1e3 * s['step_seconds']:.2f} | {share} | {matrix} | "
                f"{s['plan_bytes'] / 2**30:.2f} ({s['driver_peak_bytes'] / 2**30:.2f}) | {predicted} | {ratio} |")  # fmt: skip

    def heading(self):
        commit = gpu.commit(ROOT)
        dry = "A DRY RUN on the emulated device: no time in it means anything. " if self.a.dry_run else ""
        m = self.machine
        rate = f", {m['matrix_flops'] / 1e12:.1f} TFLOP/s in its fastest bfloat16 product y = x w^T" if "matrix_flops" in m else ""
        name = m["name"] if "name" in m else f"a GPU that was not measured ({in_cell(m['failure'])})"
        return f"{dry}{time.strftime('%Y-%m-%d')}, {name}{rate}; Echelon {commit}; {shlex.join(sys.argv)}"


def ours_for(side, sides):
    """The step time of Echelon with the state of a PyTorch side: weights, gradients and moments in bfloat16, or in float32 as autocast has them."""
    ours = ["echelon bfloat16"] if side == "pytorch bfloat16" else ["echelon", "echelon graphs"]
    return min((sides[o]["step_seconds"] for o in ours if "step_seconds" in sides.get(o, {})), default=None)


def in_cell(words):
    return " ".join(words.replace("|", "/").split())[:300]


def replace(path, text):
    """There is always a whole file, whenever this program is ended."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def run(command, seconds):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=seconds, check=True).stdout


def words_of(error):
    """The line that says what went wrong: of a process its last one that names an error, else its last one."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not done after {error.timeout:.0f} s"
    if not isinstance(error, subprocess.CalledProcessError):
        return f"{type(error).__name__}: {error}"
    lines = [line for line in ((error.stderr or "").strip() or (error.stdout or "").strip()).splitlines() if line.strip()] or [""]
    line = next((line for line in reversed(lines) if re.search(r"Error|error:", line)), lines[-1])
    end = f"exit status {error.returncode}" if error.returncode > 0 else f"ended by signal {-error.returncode}"
    return f"{line.strip()} ({end})".strip()


def say(line):
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
