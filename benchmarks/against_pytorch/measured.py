"""Runs a command and writes to a file, as JSON: its exit status, peak resident memory, processor time, and the share of the machine that others took meanwhile.

usage: measured.py FILE COMMAND...        A process of its own, so that a launcher's waiting for its turn is not counted.
"""

import json
import os
import pathlib
import subprocess
import sys
import time


def main():
    before, began = busy_seconds(), time.monotonic()
    process = subprocess.Popen(sys.argv[2:])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall, own = time.monotonic() - began, usage.ru_utime + usage.ru_stime
    others = max(0.0, busy_seconds() - before - own) / (wall * os.cpu_count())
    result = {"exit": process.returncode, "peak_bytes": usage.ru_maxrss * 1024, "cpu_seconds": own, "wall_seconds": wall, "others": others}
    pathlib.Path(sys.argv[1]).write_text(json.dumps(result))


def busy_seconds():
    fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")  # all but idle and iowait; guests are in user


if __name__ == "__main__":
    main()
