#!/usr/bin/env python3
"""Published runs with context parallelism as predicted: step times, and what it is worth to NeMo on long sequences.

    benchmarks/accuracy/context_parallel.py FOLDER [--sequences=1]

FOLDER holds throughput.csv, long_context.csv and memory.csv. No constant was fitted to these rows. Those of long_context.csv name
a layout with context parallelism and the speed of the best one without it, which they do not name: here that is the
fastest that fits of all tensor and pipeline degrees, virtual stages, and no or full recomputation. Neither the batch
nor the recomputation is printed there. --sequences is what each data-parallel rank of the row's layout is assumed to
have in a step; recomputation is the fastest that fits. Memory, and the run that offloads checkpoints, are shown without
a bar.
"""
import argparse
import os

import published


def has_context(row):
    """Others are kept for a test that nobody has seen."""
    return row["cp"] not in ("", "1") and not row["experts"] and row["group"] in ("torchtitan", "dgxc")


def print_times(echelon, rows):
    groups = {}
    for row, out in zip(rows, published.predict(echelon, rows)):
        error = out["predicted_seconds"] / float(row["iter_time_s"]) - 1
        groups.setdefault(row["group"], []).append(error)
        print(f"{row['id']}: {out['predicted_seconds']:.2f} s, measured {float(row['iter_time_s']):.2f} ({100 * error:+.1f} %)")
    means = {group: sum(map(abs, errors)) / len(errors) for group, errors in groups.items()}
    for group, mean in means.items():
        print(f"{group}: {len(groups[group])} runs, mean {100 * mean:.1f} %")
    print(f"mean of the groups {100 * sum(means.values()) / len(means):.1f} %")


def divisors(number):
    return [d for d in range(1, number + 1) if number % d == 0]


def layouts(run, batch, degrees):
    """Rows of a run in layouts with the degrees (tp, pp, cp)."""
    gpus, layers = int(run["gpus"]), int(run["layers"])
    for tp, pp, cp in degrees:
        dp = gpus // (tp * pp * cp)
        if gpus % (tp * pp * cp) or batch % dp or layers % pp:
            continue
        for vpp in divisors(layers // pp) if pp > 1 and batch // dp % pp == 0 else [1]:
            schedule = "interleaved-1F1B" if vpp > 1 else "1F1B" if pp > 1 else "none"
            for recompute in ("none", "full"):
                yield {**run, "tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "dp": dp, "mbs": 1, "gbs": batch, "sp": int(tp > 1),
                       "recompute": recompute, "zero": 1, "flash_attn": 1, "schedule": schedule}


def best_of(echelon, rows):
    """Seconds and row of the fastest that fits."""
    return min((out["predicted_seconds"], i, row) for i, (row, out) in enumerate(zip(rows, published.predict(echelon, rows)))
               if out.get("fits"))[::2]


def print_worth(echelon, runs, sequences):
    for run in runs:
        gpus, batch = int(run["gpus"]), sequences * int(run["dp"])
        whole = [(tp, pp, 1) for tp in divisors(int(run["heads"])) for pp in divisors(gpus // tp)]
        own = [(int(run["tp"]), int(run["pp"]), int(run["cp"]))]
        ours, its = best_of(echelon, list(layouts(run, batch, own)))
        others, without = best_of(echelon, list(layouts(run, batch, whole)))
        print(f"{run['id']}: {others / ours:.2f} times as fast, measured {run['speedup']} (batch {batch}; {its['recompute']} "
              f"recomputed; without: tp {without['tp']}, pp {without['pp']} x {without['vpp']}, {without['recompute']} recomputed)")


def is_in_memory_table(each, by_id):
    row = by_id.get(each["id"].removeprefix("mem-"))
    return row is not None and has_context(row)


def print_memory(echelon, folder, rows):
    by_id = {row["id"]: row for row in rows}
    measured = [each for each in published.read(os.path.join(folder, "memory.csv")) if is_in_memory_table(each, by_id)]
    for each, out in zip(measured, published.predict(echelon, [by_id[each["id"].removeprefix("mem-")] for each in measured])):
        unit = 2**30 if each["unit"] == "GiB" else 1e9
        predicted = out["predicted_memory_bytes"] / unit
        print(f"{each['id']}: {predicted:.1f} {each['unit']}, measured {each['value']} ({100 * (predicted / float(each['value']) - 1):+.1f} %)")


def print_offloaded(echelon, runs):
    """Echelon keeps the inputs of blocks on the device: the run is predicted so, and with what they take subtracted."""
    plain = [{**run, "recompute": "full", "vpp": "1", "sp": "0", "experts": "", "flash_attn": "1", "schedule": "none"} for run in runs]
    for run, out in zip(runs, published.predict_with(echelon, plain, None, ["--profile", "echelon"]) if plain else []):
        kept = int(run["layers"]) * int(run["seq"]) // int(run["cp"]) * int(run["hidden"]) * 2 / 2**30
        memory = out["predicted_memory_bytes"] / 2**30
        print(f"{run['id']}: {out['predicted_seconds']:.0f} s, measured {float(run['iter_time_s']):.0f}; {memory:.1f} GiB, without the {kept:.1f} "
              f"that it offloads {memory - kept:.1f}, measured {run['mem_gb']} GB (as Echelon runs it, whose head is in chunks too)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--echelon", default="build/release/echelon")
    arguments = parser.parse_args()
    rows = published.read(os.path.join(arguments.folder, "throughput.csv"))
    print_times(arguments.echelon, [row for row in published.measured(rows) if has_context(row)])
    runs = published.read(os.path.join(arguments.folder, "long_context.csv"))
    print_worth(arguments.echelon, [run for run in runs if run["speedup"]], arguments.sequences)
    print_memory(arguments.echelon, arguments.folder, rows)
    print_offloaded(arguments.echelon, [run for run in runs if "offload" in run["recompute"]])


if __name__ == "__main__":
    main()
