#!/usr/bin/env python3
"""Published runs of mixtures of experts as predicted: step times.

    benchmarks/accuracy/experts.py FOLDER

FOLDER holds moe.csv and throughput.csv. No constant was fitted to these rows, and none of them says everything. One
rule fills what is blank: microbatches of one sequence, interleaved stages of one layer, no recomputation, features of
experts divided over the tensor-parallel ranks (etp = tp), experts over as many data-parallel ranks as they can be (ep).
Each row has the span of the predictions with other values of its blanks, as far as these fit in memory.

A group that is left out whole is predicted with the one factor that fits the other group best. Methods are the rows of
a model: a pair is exchanged if the faster one is predicted to be the slower one, by tokens per second and GPU. Rows
that Echelon cannot express are listed with the reason. Runs in 8 bits are left out.
"""
import argparse
import itertools
import math
import os
import statistics

import published

megatron_core, grok, megascale, bridge = "Megatron-Core 0.9", "Grok 1", "MegaScale", "Megatron-Bridge"
not_counted = (megascale, bridge)  # what they leave blank, or their models, are too different from what is predicted
groups = {"mcore-moe-folding": megatron_core, "mcore-moe-readme": megatron_core, "megascale-moe": megascale}
far_apart = 0.1


# What Megatron-Bridge's rows leave out of their models' public configs. DeepSeek's latent heads have 192 columns.
sizes_of = {"DeepSeek-V3-671B": {"head_dim": "192", "shared_ffn": "2048"}, "Qwen3-235B-A22B": {"head_dim": "128"}, "gpt-oss-120b": {"head_dim": "64"}}


def group_of(row):
    if row["group"].startswith("mbridge"):
        return bridge
    return grok if row["id"].startswith("dgxc-grok1") else groups.get(row["group"])


def is_predicted(row):
    return row["experts"] and row["iter_time_s"] and "fp8" not in row["precision"].lower() and group_of(row)


def number(row, column):
    return int(row[column] or 1)


def divisors(count):
    return [each for each in range(1, count + 1) if count % each == 0]


def blanks(row):
    """The values that may stand in the blank columns of a row."""
    allowed = {}
    if not row["mbs"]:
        allowed["mbs"] = [each for each in (1, 2, 4) if number(row, "gbs") % (number(row, "dp") * each) == 0]
    if not row["vpp"] and number(row, "pp") > 1:
        allowed["vpp"] = divisors(number(row, "layers") // number(row, "pp"))
    if not row["recompute"]:
        allowed["recompute"] = ["none", "selective", "full"]
    if not row["etp"] and number(row, "tp") > 1:
        allowed["etp"] = [1, number(row, "tp")]
    if not row["ep"]:
        ranks = number(row, "tp") * number(row, "cp") * number(row, "dp")
        allowed["ep"] = [each for each in divisors(number(row, "experts")) if ranks % each == 0]
    return allowed


def others(row):
    """The row with each combination of other values."""
    allowed = blanks(row)
    return [filled(row) | dict(zip(allowed, map(str, values))) for values in itertools.product(*allowed.values())]


def filled(row):
    row = row | sizes_of.get(row["model"], {})
    return row if row["ep"] else row | {"ep": str(math.gcd(number(row, "experts"), number(row, "dp")))}


def error_of(run, factor=1):
    return abs(factor * run["predicted"] / run["measured"] - 1)


def tokens(run, seconds):
    row = run["row"]
    return number(row, "gbs") * number(row, "seq") / seconds / number(row, "gpus")


def print_row(run, outs):
    seconds = [out["predicted_seconds"] for out in outs if out.get("fits")]
    span = f"span {min(seconds):.2f} to {max(seconds):.2f} s of {len(seconds)}" if len(seconds) > 1 else "no span"
    error = 100 * (run["predicted"] / run["measured"] - 1)
    print(f"{run['row']['id']}: {run['predicted']:.2f} s, measured {run['measured']:.2f} ({error:+.1f} %), {span}")


def print_groups(runs):
    counted = {name: [run for run in runs if group_of(run["row"]) == name] for name in (megatron_core, grok)}
    means = []
    for name, its in counted.items():
        factor = statistics.median(run["measured"] / run["predicted"] for other in counted if other != name for run in counted[other])
        means.append(statistics.mean(map(error_of, its)))
        left_out = statistics.mean(error_of(run, factor) for run in its)
        print(f"{name}: {len(its)} runs, mean {100 * means[-1]:.1f} %, left out {100 * left_out:.1f} % (factor {factor:.3f})")
    for name in not_counted:
        its = [error_of(run) for run in runs if group_of(run["row"]) == name]
        print(f"{name}, not counted: {len(its)} runs, mean {100 * statistics.mean(its):.1f} %")
    errors = [error_of(run) for its in counted.values() for run in its]
    print(f"mean of the groups {100 * statistics.mean(means):.1f} %, median run {100 * statistics.median(errors):.1f} %")
    for kind in ("FSDP", "ZeRO-1"):
        its = [error_of(run) for run in counted[megatron_core] if ("FSDP" in run["row"]["software"]) == (kind == "FSDP")]
        print(f"{megatron_core} with {kind}: {len(its)} runs, mean {100 * statistics.mean(its):.1f} %, max {100 * max(its):.1f} %")


def print_order(runs):
    pairs, exchanged = 0, []
    for a, b in itertools.combinations(runs, 2):
        if any(a["row"][column] != b["row"][column] for column in ("model", "layers", "seq")):
            continue
        faster, slower = sorted((a, b), key=lambda run: -tokens(run, run["measured"]))
        if tokens(faster, faster["measured"]) < (1 + far_apart) * tokens(slower, slower["measured"]):
            continue
        pairs += 1
        if tokens(faster, faster["predicted"]) < tokens(slower, slower["predicted"]):
            exchanged.append(f"{faster['row']['id']} and {slower['row']['id']}")
    print(f"order: {len(exchanged)} of {pairs} pairs more than {100 * far_apart:.0f} % apart are exchanged{': ' if exchanged else ''}{', '.join(exchanged)}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("folder")
    arguments.add_argument("--echelon", default="build/release/echelon")
    options = arguments.parse_args()
    rows = [row for name in ("moe.csv", "throughput.csv") for row in published.read(os.path.join(options.folder, name)) if is_predicted(row)]
    columns = list(dict.fromkeys([column for row in rows for column in row] + ["head_dim"]))
    rows = [{column: row.get(column, "") for column in columns} for row in rows]
    spans = [others(row) for row in rows]
    outs = iter(published.predict(options.echelon, [filled(row) for row in rows] + list(itertools.chain(*spans))))
    as_filled = list(itertools.islice(outs, len(rows)))
    runs = []
    for row, out, span in zip(rows, as_filled, spans):
        with_others = list(itertools.islice(outs, len(span)))
        if "error" in out:
            print(f"{row['id']}: {out['error']}")
            continue
        runs.append({"row": row, "predicted": out["predicted_seconds"], "measured": float(row["iter_time_s"])})
        print_row(runs[-1], with_others)
    print_groups(runs)
    print_order([run for run in runs if group_of(run["row"]) not in not_counted])


if __name__ == "__main__":
    main()
