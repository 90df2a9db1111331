"""Two ranks of one thread each against one rank of two threads, the same step, Echelon and PyTorch in turns.

Echelon's ranks are threads of one process, PyTorch's are processes that talk over gloo. A layout's number is the throughput of two ranks divided by that
of the same side's one rank, which runs right before it: the speed of a machine that others use too changes within minutes. Losses of all layouts must agree.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "against_pytorch"))
import cases  # noqa: E402
import compare  # noqa: E402
import knobs  # noqa: E402

LAYOUTS = {  # name -> keys of Echelon's config, what PyTorch has for it
    "one": ({}, "one process"),
    "dp": ({"parallelism.data_parallel_replicate_degree": 2, "parallelism.zero_level": 0}, "DDP"),
    "zero": ({"parallelism.data_parallel_shard_degree": 2, "parallelism.zero_level": 1}, "FSDP2"),
    "zero2": ({"parallelism.data_parallel_shard_degree": 2, "parallelism.zero_level": 2}, "FSDP2 without resharding after forward"),
    "zero3": ({"parallelism.data_parallel_shard_degree": 2, "parallelism.zero_level": 3}, "FSDP2"),
    "zero3-never": ({"parallelism.data_parallel_shard_degree": 2, "parallelism.zero_level": 3, "parallelism.reshard_after_forward": "never"}, "FSDP2 without resharding after forward"),  # fmt: skip
    "tp": ({"parallelism.tensor_parallel_degree": 2}, "tensor parallel"),
    "tp+sp": ({"parallelism.tensor_parallel_degree": 2, "parallelism.sequence_parallel": "true"}, "tensor and sequence parallel"),
    "cp": ({"parallelism.context_parallel_degree": 2}, "not compared"),
    "cp-gather": ({"parallelism.context_parallel_degree": 2, "parallelism.context_parallel_method": "all_gather"}, "not compared"),
    "cp-ulysses": ({"parallelism.context_parallel_degree": 2, "parallelism.context_parallel_method": "ulysses"}, "not compared"),
    "pp": ({"parallelism.pipeline_parallel_degree": 2}, "pipelining, 1F1B, 8 microbatches"),
    "ep": ({"parallelism.data_parallel_shard_degree": 2, "parallelism.zero_level": 1, "parallelism.expert_parallel_degree": 2}, "not compared"),
}
NAMES = {"dp": "data parallel", "zero": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "zero3-never": "ZeRO-3, resharded after backward alone", "tp": "tensor parallel", "tp+sp": "tensor and sequence parallel", "cp": "context parallel, a ring", "cp-gather": "context parallel, keys gathered", "cp-ulysses": "context parallel, heads exchanged", "pp": "pipeline, 1F1B, 8 microbatches", "ep": "experts over both, ZeRO-1"}
PIPELINE_MICROBATCHES = 8


def main():
    a = parse()
    machine = compare.describe_machine(a)
    case, folder = cases.CASES[a.case], compare.make_case(a, a.case, pathlib.Path(a.work))
    pairs = {(side, layout): [] for layout in a.layout for side in a.side if side == "echelon" or is_compared(layout)}
    for _ in range(a.turns):
        for side, layout in pairs:
            pairs[side, layout].append([turn_of(a, side, case, folder, ranks) for ranks in ("one", layout)])
    check(pairs)
    print(table(a, machine, pairs))
    if a.json:
        rows = [{"side": side, "layout": layout, "pairs": those} for (side, layout), those in pairs.items()]
        pathlib.Path(a.json).write_text(json.dumps({"machine": machine, "turns": rows}, indent=1))


def is_compared(layout):
    return LAYOUTS[layout][1] != "not compared"


def turn_of(a, side, case, folder, layout):
    turn = echelon_turn if side == "echelon" else pytorch_turn
    return compare.undisturbed(a, f"{a.case} {side} {layout}", lambda: turn(a, case, folder, layout))


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--case", default="small", choices=cases.CASES, help="PyTorch's layouts are those of gpt2's family alone")
    p.add_argument("--layout", nargs="+", default=[name for name in NAMES if is_compared(name)], choices=NAMES)
    p.add_argument("--side", nargs="+", default=["echelon", "pytorch"], choices=["echelon", "pytorch"])
    p.add_argument("--force-balance", action="store_true", help="of mixtures: tokens take experts in turn")
    compare.add_common_options(p)
    return p.parse_args()


def echelon_turn(a, case, folder, layout):
    keys = dict(LAYOUTS[layout][0])
    ranks = 1 if layout == "one" else 2
    micro_batch = case["batch"] // (ranks if layout in ("dp", "ep") or layout.startswith("zero") else PIPELINE_MICROBATCHES if layout == "pp" else 1)
    keys |= {"training.micro_batch_size": max(1, micro_batch)} | ({"moe.force_balance": "true"} if a.force_balance else {})
    with tempfile.TemporaryDirectory() as output:
        config = pathlib.Path(output, "config.toml")
        config.write_text(cases.echelon_config(case, "float32", folder, a.steps) + f'[output]\ndir = "{output}"\n')
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        turn = compare.run(a, [a.echelon, "train", str(config), *(f"--{key}={value}" for key, value in keys.items())], environment)
        steps = [json.loads(line) for line in pathlib.Path(output, "metrics.jsonl").read_text().splitlines()]
    return turn | finish(steps)


def pytorch_turn(a, case, folder, layout):
    threads = a.threads if layout == "one" else 1
    launch = [] if layout == "one" else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = compare.peer_environment(threads, knobs.best(a.case, "float32")[0])
    options = ["--layout", layout, "--case", a.case, "--folder", str(folder), "--steps", str(a.steps), "--threads", str(threads)]
    microbatches = ["--microbatches", str(min(PIPELINE_MICROBATCHES, case["batch"]))]
    turn = compare.run(a, [a.python, *launch, str(HERE / "peer.py"), *options, *microbatches], environment)
    return turn | finish([json.loads(line) for line in turn.pop("output").splitlines() if line.startswith("{")])


def finish(steps):
    timed = [s["step_seconds"] for s in steps if s["step"] >= compare.FIRST_TIMED_STEP]
    sent = sum(steps[-1].get("comm_bytes", {}).values())
    return {"losses": [s["loss"] for s in steps], "timed": timed, "seconds": statistics.median(timed), "sent_bytes": sent}


def check(pairs):
    expected = next(iter(pairs.values()))[0][0]["losses"]
    for (side, layout), those in pairs.items():
        for ranks, turn in ((ranks, turn) for pair in those for ranks, turn in zip(("one", layout), pair)):
            error = max(abs(x - y) / abs(y) for x, y in zip(turn["losses"], expected))
            if error > compare.LOSS_TOLERANCE["float32"]:
                raise SystemExit(f"losses of {side} {ranks} differ by {error:.1e}: {turn['losses']} and {expected}")


def table(a, machine, pairs):
    lines = [compare.heading(machine), "", f"{cases.DESCRIPTIONS[a.case]}, float32: throughput of two ranks of one thread, relative to one rank of two threads that ran right before", "",
             "| layout | " + " | ".join(f"{side}: s/step | {side}: scaling" for side in a.side) + " | MB that a rank sends per step | PyTorch's |", "|---|" + "---|" * (2 * len(a.side) + 2)]  # fmt: skip

    def row(name, cells, turns, peer):
        sent = max(turn["sent_bytes"] for turn in turns)
        return f"| {name} | {' | '.join(cells)} | {sent / 1e6:.1f} | {peer} |"

    def scaling(side, layout):
        ratios = [one["seconds"] / two["seconds"] for one, two in pairs[side, layout]]
        return f"{seconds_of(two for _, two in pairs[side, layout])} | {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"

    ones = {side: [one for layout in a.layout for one, _ in pairs[side, layout]] for side in a.side}
    lines.append(row("one rank, two threads", [f"{seconds_of(ones[side])} | 1" for side in a.side], sum(ones.values(), []), LAYOUTS["one"][1]))
    for layout in a.layout:
        twos = [two for side in a.side for _, two in pairs[side, layout]]
        lines.append(row(NAMES[layout], [scaling(side, layout) for side in a.side], twos, LAYOUTS[layout][1]))
    return "\n".join(lines)


def seconds_of(turns):
    return f"{statistics.median(s for turn in turns for s in turn['timed']):.3f}"


if __name__ == "__main__":
    main()
