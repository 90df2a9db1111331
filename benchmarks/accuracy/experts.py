#!/usr/bin/env python3
"""Published runs of mixtures of experts as predicted: step times.

    benchmarks/accuracy/experts.py FOLDER

FOLDER holds moe.csv and throughput.csv. No constant was fitted to these rows, and none of them says everything. One
rule fills what is blank: microbatches of one sequence, interleaved stages of one layer, no recomputation, features of
experts divided over the tensor-parallel ranks (etp = tp). Rows that Echelon cannot express are listed with the reason.
Rows without the expert degree, and runs in 8 bits, are left out.
"""
import argparse
import os

import published


def has_experts(row):
    return row["experts"] and row["ep"] and "fp8" not in row["precision"].lower() and (
        row["group"] == "mcore-moe-folding" or row["id"].startswith(("dgxc-grok1", "mcore-")))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("folder")
    arguments.add_argument("--echelon", default="build/release/echelon")
    options = arguments.parse_args()
    rows = [row for name in ("moe.csv", "throughput.csv") for row in published.read(os.path.join(options.folder, name)) if has_experts(row)]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    rows = [{column: row.get(column, "") for column in columns} for row in rows]
    errors = {}
    for row, out in zip(rows, published.predict(options.echelon, rows)):
        if "error" in out:
            print(f"{row['id']}: {out['error']}")
            continue
        error = out["predicted_seconds"] / float(row["iter_time_s"]) - 1
        kind = "FSDP" if "FSDP" in row["software"] else "ZeRO-1"
        errors.setdefault(kind, []).append(abs(error))
        print(f"{row['id']}: {out['predicted_seconds']:.2f} s, measured {float(row['iter_time_s']):.2f} ({100 * error:+.1f} %)")
    for kind, each in errors.items():
        print(f"{kind}: {len(each)} runs, mean {100 * sum(each) / len(each):.1f} %")


if __name__ == "__main__":
    main()
