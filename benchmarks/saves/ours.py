"""Echelon's side: runs with and without checkpoints, and one that loads the last of them."""

import os
import re
import shutil
import subprocess
import threading
import time

import disk


def train(a, mode):
    """One run; what it wrote stays in a.folder / "out". Steps are numbered from 1; the last save is one step after the last interval."""
    shutil.rmtree(a.folder / "out", ignore_errors=True)
    return run(a, mode, a.interval * a.saves + 1)


def load(a):
    """Continues the last run, from its checkpoint on the disk, until its first step, which is not part of the seconds."""
    folder = a.folder / "out/checkpoint"
    disk.drop_from_memory(folder)
    result = run(a, "none", a.interval * a.saves + 2, ends_after_step=True)
    result["loading"] = result["loaded"] - result["first_read"]
    if result["read_bytes"] < 0.9 * result["bytes"]:
        raise SystemExit(f"only {result['read_bytes']} bytes of {folder} came from the disk: does it lie in memory (tmpfs)?")
    return result


def run(a, mode, steps, ends_after_step=False):
    keys = {
        "model.preset": "gpt2-124m",
        "data.path": a.folder / "corpus/train",
        "training.seq_len": a.seq_len,
        "training.micro_batch_size": 1,
        "training.global_batch_size": 2,
        "training.steps": steps,
        "lr_scheduler.decay": "none",
        "parallelism.data_parallel_shard_degree": 2,
        "parallelism.zero_level": 1,
        "checkpoint.keep_latest_k": 1,
        "checkpoint.interval": 1_000_000 if mode == "none" else a.interval,
        "checkpoint.async_mode": "async" if mode == "async" else "disabled",
        "output.dir": a.folder / "out",
    }
    command = [a.echelon, "train"] + [f"--{key}={value}" for key, value in keys.items()]
    result = {"seconds": {}, "saves": [], "left_out": 0, "bytes": 0}
    begin = ended = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
    watch = threading.Thread(target=watch_reads, args=(process.pid, begin, result))
    watch.start()
    for line in process.stdout:
        now = time.monotonic()
        if match := re.match(r"checkpoint: ([\d.]+) MB", line):
            result["bytes"] = float(match[1]) * 1e6
            result["loaded"] = now - begin
        if match := re.match(r"step: +(\d+) .*  seconds: ([\d.e+-]+)", line):
            result["seconds"][int(match[1])] = float(match[2])
            result.setdefault("first_step", now - begin - float(match[2]))
            ended = now
            if ends_after_step:
                process.kill()
                break
        result["left_out"] += "is left out" in line
        if match := re.match(r"saved .*/step-(\d+)$", line):
            result["saves"].append((int(match[1]), now - ended))
    _, status, usage = os.wait4(process.pid, 0)
    process.stdout.close()
    watch.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 and not ends_after_step:
        raise SystemExit(f"{' '.join(map(str, command))} failed")
    result["peak_bytes"] = usage.ru_maxrss * 1024
    return result


def watch_reads(pid, begin, result):
    """When the process read more than a header from the disk, and how much in all. The start of a run allocates memory before, which is no part of loading."""
    while True:
        try:
            result["read_bytes"] = disk.read_bytes(pid)
        except (OSError, StopIteration):  # it has ended
            return
        if result["read_bytes"] > 4_000_000:
            result.setdefault("first_read", time.monotonic() - begin)
        time.sleep(0.002)
