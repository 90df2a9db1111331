"""Trains GPT-2 124M in float32 on two ranks with a checkpoint every few steps, in turns with the same run without checkpoints, a start from a checkpoint, PyTorch's DCP and dd, and prints medians."""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import disk
import ours

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODES = ["none", "async", "disabled"]
median = statistics.median


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    p.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/saves", help="on the disk that is measured")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--interval", type=int, default=5)
    p.add_argument("--saves", type=int, default=4, help="in a run")
    p.add_argument("--seq-len", type=int, default=1024)
    p.add_argument("--no-pytorch", action="store_true")
    p.add_argument("--json", type=pathlib.Path, help="write everything measured to this file")
    a = p.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    a.folder, a.echelon = a.folder.resolve(), a.build.resolve() / "echelon"
    corpus = a.folder / "corpus"
    if not corpus.exists():
        subprocess.run([a.echelon, "prepare", ROOT / "src", "--glob", "*.cpp", "--output", corpus, "--vocab-size", "2048"], check=True, stdout=subprocess.DEVNULL)
    turns = [turn(a) for _ in range(a.turns)]
    if a.json:
        a.json.write_text(json.dumps(turns, indent=1))
    report(a, turns)


def turn(a):
    result = {mode: ours.train(a, mode) for mode in MODES}
    result["read"] = disk.read_seconds(a.folder / "out/checkpoint")
    result["load"] = ours.load(a)
    shutil.rmtree(a.folder / "out")
    result["write"] = disk.write_seconds(a.folder, result["disabled"]["bytes"])
    if not a.no_pytorch:
        result["pytorch"] = pytorch(a)
    return result


def pytorch(a):
    folder = a.folder / "dcp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", HERE / "peer.py", "--folder", folder]
    command += [f"--{name}={value}" for name, value in {"interval": a.interval, "saves": a.saves, "seq-len": a.seq_len}.items()]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    shutil.rmtree(folder)
    return json.loads(output.splitlines()[-1])


def report(a, turns):
    num_bytes = turns[0]["disabled"]["bytes"]
    print(f"{a.turns} turns, {a.interval * a.saves} steps, a checkpoint of {num_bytes / 1e9:.2f} GB every {a.interval} steps, {os.cpu_count()} cores; medians")
    report_steps(a, turns)
    speed = lambda seconds: f"{seconds:.3f} s, {num_bytes / seconds / 1e9:.2f} GB/s"  # noqa: E731
    written = median(s for t in turns for _, s in t["disabled"]["saves"])
    write, read, loading = median(t["write"] for t in turns), median(t["read"] for t in turns), median(t["load"]["loading"] for t in turns)
    print(f"a save that training waits for: {speed(written)}; dd with fsync: {speed(write)} ({write / written:.0%} of its speed)")
    print(f"loading from the disk: {speed(loading)}; dd: {speed(read)} ({read / loading:.0%} of its speed)")
    first, of_nothing = (median(t[run]["first_step"] for t in turns) for run in ("load", "none"))
    before, after = median(t["load"]["first_read"] for t in turns), median(t["load"]["first_step"] - t["load"]["loaded"] for t in turns)
    print(f"from the start to the first step: {first:.3f} s, {first - loading:.3f} s more than loading ({before:.3f} s before it, {after:.3f} s after it); without a checkpoint: {of_nothing:.3f} s")
    peaks = {run: median(t[run]["peak_bytes"] for t in turns) for run in (*MODES, "load")}
    print("peak memory of the process, GB: " + ", ".join(f"{name} {peaks[run] / 1e9:.2f}" for run, name in zip(peaks, ("no saves", "async", "saves that training waits for", "loading"))))
    if not a.no_pytorch:
        report_pytorch(a, [t["pytorch"] for t in turns])


def report_steps(a, turns):
    after_save = range(a.interval + 1, a.interval * a.saves + 2, a.interval)
    total = {mode: [sum(s for step, s in t[mode]["seconds"].items() if step > 1) for t in turns] for mode in MODES}
    with_snapshot = median(t["async"]["seconds"][step] for t in turns for step in after_save)
    plain = median(s for t in turns for step, s in t["none"]["seconds"].items() if step > 1)
    print(f"a step: {plain:.3f} s; with the snapshot: {with_snapshot:.3f} s ({with_snapshot / plain - 1:+.1%}), so it stalls {with_snapshot - plain:.3f} s")
    pairs = [b / c - 1 for b, c in zip(total["async"], total["none"])]
    print(f"all steps: {median(total['none']):.1f} s without checkpoints, {median(total['async']):.1f} s while they are written ({median(pairs):+.1%}; turns {', '.join(f'{p:+.1%}' for p in pairs)})")
    print(f"left out: {sum(t['async']['left_out'] for t in turns)} of {a.turns * a.saves}")


def report_pytorch(a, turns):
    total = [(sum(t["async"]["stalls"] + t["async"]["steps"]) / sum(t["plain"]["steps"])) - 1 for t in turns]
    stalls, written, plain = (median(s for t in turns for s in t[phase][of]) for phase, of in (("async", "stalls"), ("async", "written"), ("plain", "steps")))
    num_bytes = turns[0]["bytes"]
    save, load = (median(t[what]["seconds"] for t in turns) for what in ("save", "load"))
    print(f"PyTorch's DCP, {num_bytes / 1e9:.2f} GB, FSDP2 over gloo on two processes:")
    print(f"  a save that training waits for: {save:.3f} s; loading from the disk: {load:.3f} s ({median(t['load']['read_bytes'] for t in turns) / num_bytes:.0%} of the bytes came from there)")
    print(f"  async_save: stalls {stalls:.3f} s of a step of {plain:.3f} s; all steps and stalls: {median(total):+.1%}; written after {written:.3f} s")
    peaks = {phase: median(t[phase]["peak_bytes"] for t in turns) for phase in ("plain", "async", "save", "load")}
    print("  peak memory of both processes, GB: " + ", ".join(f"{name} {peaks[phase] / 1e9:.2f}" for phase, name in zip(peaks, ("no saves", "async", "saves that training waits for", "loading"))))


if __name__ == "__main__":
    main()
