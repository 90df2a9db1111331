"""The GPU that the programs of this folder compute on: the first that CUDA_VISIBLE_DEVICES names, else the first of the machine; and the memory that it has in use."""

import json
import os
import pathlib
import subprocess
import threading

# As nvidia-smi counts GPUs; left alone, CUDA begins with the fastest.
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def ask(*fields):
    """What nvidia-smi says of it, as text; None where there is no such GPU or no nvidia-smi."""
    command = ["nvidia-smi", f"--query-gpu=index,uuid,{','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    for line in said.splitlines():
        index, uuid, *values = (value.strip() for value in line.split(","))
        if chosen == index or (chosen.startswith("GPU-") and uuid.startswith(chosen)):
            return values
    return None


def commit(root):
    """Of a checkout or a pack, as text; a question mark where neither says it."""
    about = pathlib.Path(root) / "pack.json"
    if about.exists():
        return json.loads(about.read_text())["commit"]
    try:
        return subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "?"


class WatchedMemory:
    """The most bytes that the driver says are used there, every two seconds; 0 where that is not known."""

    def __enter__(self):
        self.peak_bytes, self.ended = 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def watch(self):
        is_over = False
        while not is_over:
            is_over = self.ended.wait(2)  # a query takes locks of the driver, which steps would wait for
            used = ask("memory.used")
            if used is None or not used[0].isdigit():
                return
            self.peak_bytes = max(self.peak_bytes, int(used[0]) << 20)
