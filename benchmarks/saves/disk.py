"""The disk alone: what dd needs for as many bytes, and files that no memory holds any more."""

import os
import subprocess
import time


def write_seconds(folder, num_bytes):
    """Of a new file, with fsync."""
    path = folder / "dd"
    path.unlink(missing_ok=True)
    begin = time.monotonic()
    dd("if=/dev/zero", f"of={path}", "bs=4M", f"count={round(num_bytes / 2**22)}", "conv=fsync")
    seconds = time.monotonic() - begin
    path.unlink()
    return seconds


def read_seconds(folder):
    """Of all files of a folder, one after the other, from the disk."""
    drop_from_memory(folder)
    begin = time.monotonic()
    for path in files_of(folder):
        dd(f"if={path}", "of=/dev/null", "bs=4M")
    return time.monotonic() - begin


def drop_from_memory(folder):
    """The next reader gets them from the disk, if whoever wrote them has synced them."""
    for path in files_of(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def num_bytes_of(folder):
    return sum(path.stat().st_size for path in files_of(folder))


def read_bytes(pid="self"):
    """That a process has caused to be read from disks."""
    with open(f"/proc/{pid}/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def dd(*operands):
    subprocess.run(["dd", *operands], check=True, stderr=subprocess.DEVNULL)
