"""Times the program of a base commit and the working tree's in turns, and says which case became slower.

Training is timed by its steps from the second on (wall clock), the other cases by the processor time of the command.
A turn is one process of each program, or several where a command is short. The ratio is the base's median over the
working tree's; the range is that of the ratios of single turns. A turn that other processes disturbed is repeated.
Exits with 1 if a ratio is below 0.98, with 2 if none is but other processes took too much of the machine to tell.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "against_pytorch")]
import base_program  # noqa: E402
import cases as models  # noqa: E402  of benchmarks/against_pytorch, drawn by a seed instead of by PyTorch

WORK = base_program.ROOT / "build/equal_speed"
EXAMPLES = base_program.ROOT / "examples"
LEAST_RATIO = 0.98
COMMANDS = {
    "simulate-405b": ["simulate", str(EXAMPLES / "textbook/llama3-405b.toml"), "--machine=h100", "--json"],
    "plan-gpt3-175b": ["plan", "--model=gpt3-175b", "--machine=a100-80", "--gpus=4096", "--global-batch-size=4096",
                       "--json"],
    "plan-llama3-8b": ["plan", "--model=llama3-8b", "--machine=h100", "--gpus=16", "--global-batch-size=64",
                       "--seq-len=8192", "--json"],
}  # fmt: skip
TRAINED = ["small", "gpt2-b1", "gpt2-b4", "llama"]
CASES = [*TRAINED, "many-ranks", *COMMANDS]
LEAST_SECONDS = 2.0  # of a turn
BUSY = 0.3  # the share of others above which it is of no use to try again


def main():
    a = parse()
    base = base_program.build_base(a.base, with_emulated_gpu=False) / "echelon"
    new = (pathlib.Path(a.build).resolve() if a.build else base_program.build_working_tree(False)) / "echelon"
    WORK.mkdir(parents=True, exist_ok=True)
    header = f"{'case':<18}{'clock':<11}{'base s':>10}{'new s':>10}{'base/new':>10}  {'of single turns':<17}others"
    print(header, flush=True)
    verdicts = {name: compare(a, name, base, new) for name in a.case}
    named = {kind: [name for name in a.case if verdicts[name] == kind] for kind in ("SLOWER", "disturbed")}
    slower, disturbed = (", ".join(named[kind]) or "none" for kind in named)
    print(f"below {LEAST_RATIO}: {slower}; disturbed by other processes: {disturbed}")
    return 1 if named["SLOWER"] else 2 if named["disturbed"] else 0


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--base", default=base_program.BEFORE_REFACTORING, help="the commit to compare with")
    p.add_argument("--case", nargs="+", default=CASES, choices=CASES, metavar="CASE", help=", ".join(CASES))
    p.add_argument("--turns", type=int, default=3, help="of each program")
    p.add_argument("--steps", type=int, default=3, help="of a turn's training; the first is not timed")
    p.add_argument("--dtype", default="float32", help="of the trained models")
    p.add_argument("--processor-time", action="store_true",
                   help="for a machine in use: models are trained by one thread, and the whole process is timed")
    p.add_argument("--max-others", type=float, default=0.04, help="of the processor; more repeats the turn")
    p.add_argument("--attempts", type=int, default=3, help="at a turn; then the least disturbed one counts")
    p.add_argument("--build", help="a build folder to compare as it is; build/release is not built then")
    return p.parse_args()


def compare(a, name, base, new):
    """Prints the row of a case and returns its verdict."""
    arguments = prepare(a, name, base)
    commands = {"base": [str(base), *arguments], "new": [str(new), *arguments]}
    by_processor = name in COMMANDS or a.processor_time
    time_one = time_command if by_processor else time_steps
    turns = []
    for number in range(a.turns):
        order = list(commands)[:: -1 if number % 2 else 1]
        turns.append(undisturbed(a, {side: commands[side] for side in order}, time_one))
    medians = {side: statistics.median(turn[side] for turn in turns) for side in commands}
    ratio, others = medians["base"] / medians["new"], max(turn["others"] for turn in turns)
    single = [turn["base"] / turn["new"] for turn in turns]
    # Processor time depends less on what other processes do, but it does: they share caches and the cores' units.
    is_disturbed = others > (BUSY if by_processor else a.max_others)
    verdict = "disturbed" if is_disturbed else "SLOWER" if ratio < LEAST_RATIO else "ok"
    clock = "processor" if by_processor else "wall"
    print(f"{name:<18}{clock:<11}{medians['base']:>10.4f}{medians['new']:>10.4f}{ratio:>10.3f}"
          f"  {min(single):.3f} - {max(single):<8.3f}{others:>6.0%}  {verdict}", flush=True)  # fmt: skip
    return verdict


def prepare(a, name, base):
    """What a case needs in build/equal_speed, and its arguments."""
    if name in COMMANDS:
        return COMMANDS[name]
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    if name == "many-ranks":
        if not (folder / "corpus/train.idx").exists():
            source = ["--input", str(base.parents[2] / "src"), "--glob", "*.cpp", "--glob", "*.h"]
            subprocess.run([base, "prepare", *source, "--output", folder / "corpus", "--vocab-size=2048"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        config, data = EXAMPLES / "many_ranks.toml", [f"--data.path={folder}/corpus/train"]
        return ["train", str(config), *data, f"--training.steps={a.steps}", "--training.device=cpu"]
    threads = ["--training.num_threads=1"] if a.processor_time else []
    case = models.CASES[name]
    if not (folder / "tokens.idx").exists():
        models.prepare(case, folder)
    text = models.echelon_config(case, a.dtype, folder, a.steps).replace("initial_load_path", "# initial_load_path")
    (folder / "config.toml").write_text(text)
    return ["train", str(folder / "config.toml"), "--training.device=cpu", *threads]


def undisturbed(a, commands, time_one):
    """The least disturbed of some attempts at a turn. On a machine that is busy all the time there is only one."""
    attempts = []
    for _ in range(a.attempts):
        attempts.append(turn(commands, time_one))
        if not a.max_others < attempts[-1]["others"] < BUSY:
            break
    return min(attempts, key=lambda attempt: attempt["others"])


def turn(commands, time_one):
    """Each side's median seconds, and the share of the machine that others took. Short commands run several times."""
    runs = {side: [] for side in commands}
    while sum(wall for each in runs.values() for _, wall, _ in each) < LEAST_SECONDS:
        for side, command in commands.items():
            runs[side].append(time_one(command))
    others = statistics.mean(share for each in runs.values() for _, _, share in each)
    return {side: statistics.median(value for value, _, _ in each) for side, each in runs.items()} | {"others": others}


def time_steps(command):
    """The median of the steps from the second on, by the wall clock."""
    with tempfile.TemporaryDirectory(dir=WORK) as output:
        measured = run([*command, f"--output.dir={output}"])
        lines = pathlib.Path(output, "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step_seconds"] for line in lines[1:]]
    return statistics.median(steps), measured["wall_seconds"], measured["others"]


def time_command(command):
    """The processor time of the whole command."""
    with tempfile.TemporaryDirectory(dir=WORK) as output:
        measured = run([*command, *([f"--output.dir={output}"] if command[1] == "train" else [])])
    return measured["cpu_seconds"], measured["wall_seconds"], measured["others"]


def run(command):
    """What benchmarks/against_pytorch/measured.py says of the process."""
    with tempfile.NamedTemporaryFile() as result:
        measured = [sys.executable, str(HERE.parent / "against_pytorch/measured.py"), result.name]
        done = subprocess.run([*measured, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = pathlib.Path(result.name).read_text()
        if not said or json.loads(said)["exit"] != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.decode()[-2000:]}")
    return json.loads(said)


if __name__ == "__main__":
    sys.exit(main())
