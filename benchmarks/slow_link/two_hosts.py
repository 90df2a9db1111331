"""Runs of `echelon train` over two hosts with a slow link."""
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def add_options(parser, rate, steps, turns):
    parser.add_argument("--rate", default=rate)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--turns", type=int, default=turns)
    parser.add_argument("--build", default=str(ROOT / "build/release"))


def prepare(build, scratch, **options):
    """A corpus at scratch/corpus/train."""
    more = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    subprocess.run([f"{build}/echelon", "prepare", "--input", ROOT / "src/spec", "--output", scratch / "corpus", *more], check=True, stdout=subprocess.DEVNULL)


def run(build, scratch, keys, rate, num_ranks=4, mapping="slot"):
    """Seconds of the steps after the first, and bytes that host1 sends. `mapping` of ranks: "slot" fills one host after the other, "node" takes them in turns."""
    out = scratch / "out"
    subprocess.run(["rm", "-rf", out], check=True)
    keys = keys | {"data.path": scratch / "corpus/train", "output.dir": out}
    options = " ".join(f"--{key}={value}" for key, value in keys.items())
    of_host = num_ranks // 2
    (scratch / "job").write_text(
        f"mpirun --oversubscribe -n {num_ranks} --host host1:{of_host},host2:{of_host} --map-by {mapping} --mca plm_rsh_agent $HOSTS_AGENT {build}/echelon train {options} >/dev/null\n"
        "cat /sys/class/net/eth0/statistics/tx_bytes\n"
    )
    environment = os.environ | dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    sent = int(subprocess.run([ROOT / "tests/hosts/two_hosts", "--rate", rate, "bash", scratch / "job"], check=True, stdout=subprocess.PIPE, env=environment).stdout)
    return [json.loads(line)["step_seconds"] for line in (out / "metrics.jsonl").read_text().splitlines() if '"step_seconds"' in line][1:], sent
