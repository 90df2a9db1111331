"""Trains GPT-2 124M in float32 on two ranks with a checkpoint every few steps, in turns with the same run without checkpoints, and prints a table."""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODES = ["none", "async", "disabled"]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    p.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/saves", help="on the disk that is measured")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--interval", type=int, default=5)
    p.add_argument("--saves", type=int, default=4, help="in a run")
    p.add_argument("--seq-len", type=int, default=1024)
    a = p.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    a.echelon = a.build.resolve() / "echelon"
    corpus = a.folder / "corpus"
    if not corpus.exists():
        subprocess.run([a.echelon, "prepare", ROOT / "src", "--glob", "*.cpp", "--output", corpus, "--vocab-size", "2048"], check=True, stdout=subprocess.DEVNULL)
    runs = {mode: [] for mode in MODES}
    disk = []
    for _ in range(a.turns):
        for mode in MODES:
            runs[mode].append(run(a, mode))
        disk.append(dd(a.folder, runs["disabled"][-1]["bytes"]))
    report(a, runs, disk)


def run(a, mode):
    """One run. Steps are numbered from 1; the last save is one step after the last interval."""
    out = a.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    steps = a.interval * a.saves + 1
    keys = {
        "model.preset": "gpt2-124m",
        "data.path": a.folder / "corpus/train",
        "training.seq_len": a.seq_len,
        "training.micro_batch_size": 1,
        "training.global_batch_size": 2,
        "training.steps": steps,
        "parallelism.data_parallel_shard_degree": 2,
        "parallelism.zero_level": 1,
        "checkpoint.keep_latest_k": 1,
        "checkpoint.interval": 1_000_000 if mode == "none" else a.interval,
        "checkpoint.async_mode": "async" if mode == "async" else "disabled",
        "output.dir": out,
    }
    command = [a.echelon, "train"] + [f"--{key}={value}" for key, value in keys.items()]
    seconds, saves, left_out, ended, num_bytes = {}, [], 0, 0.0, 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1) as process:
        for line in process.stdout:
            now = time.monotonic()
            if match := re.match(r"checkpoint: ([\d.]+) MB", line):
                num_bytes = float(match[1]) * 1e6
            if match := re.match(r"step: +(\d+) .*  seconds: ([\d.e+-]+)", line):
                seconds[int(match[1])] = float(match[2])
                ended = now
            left_out += "is left out" in line
            if match := re.match(r"saved .*/step-(\d+)$", line):
                saves.append((int(match[1]), now - ended))
        if process.wait() != 0:
            raise SystemExit(f"{' '.join(map(str, command))} failed")
    shutil.rmtree(out)
    return {"seconds": seconds, "saves": saves, "left_out": left_out, "bytes": num_bytes}


def dd(folder, num_bytes):
    """Seconds of a new file of as many bytes, with fsync."""
    path = folder / "dd"
    path.unlink(missing_ok=True)
    begin = time.monotonic()
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=4M", f"count={round(num_bytes / 2**22)}", "conv=fsync"], check=True, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - begin
    path.unlink()
    return seconds


def report(a, runs, disk):
    total = {mode: [sum(s for step, s in run["seconds"].items() if step > 1) for run in of] for mode, of in runs.items()}
    with_snapshot = [run["seconds"][step + 1] for run in runs["async"] for step in range(a.interval, a.interval * a.saves + 1, a.interval)]
    plain = [s for run in runs["none"] for step, s in run["seconds"].items() if step > 1]
    written = [s for run in runs["disabled"] for step, s in run["saves"]]
    median = statistics.median
    num_bytes = runs["disabled"][0]["bytes"]
    print(f"{a.turns} turns, {a.interval * a.saves} steps, a checkpoint of {num_bytes / 1e9:.2f} GB every {a.interval} steps, {os.cpu_count()} cores")
    print(f"a step: {median(plain):.3f} s; with the snapshot: {median(with_snapshot):.3f} s ({median(with_snapshot) / median(plain) - 1:+.1%})")
    pairs = [b / c - 1 for b, c in zip(total["async"], total["none"])]
    print(f"all steps: {median(total['none']):.1f} s without checkpoints, {median(total['async']):.1f} s while they are written ({median(pairs):+.1%}; turns {', '.join(f'{p:+.1%}' for p in pairs)})")
    print(f"left out: {sum(run['left_out'] for run in runs['async'])} of {a.turns * a.saves}")
    print(f"a save that training waits for: {median(written):.3f} s, {num_bytes / median(written) / 1e9:.2f} GB/s; dd with fsync: {median(disk):.3f} s, {num_bytes / median(disk) / 1e9:.2f} GB/s")


if __name__ == "__main__":
    main()
