#!/usr/bin/env python3
"""A table of operators that were profiled once each and added up (vTrain), compared with `echelon simulate --rows`:

    benchmarks/accuracy/operators.py FOLDER [--echelon build/release/echelon] [--constants NAME=VALUE,...]

FOLDER holds vtrain_single.csv: layouts of one node of A100 GPUs (Megatron-DeepSpeed, full recomputation, fp16, 1F1B). The models are small, so the host decides. The
table counts as no run, group or coverage. Prints means and biases by column. Needs no library."""
import argparse, collections, os, statistics
import published

FIXED = {"gpu": "A100-80GB-SXM", "gpu_mem_gb": "80", "intra": "NVLink3", "inter_per_node": "8x200Gb", "mlp": "gelu4h", "vocab": "50257", "recompute": "full",
         "precision": "fp16", "flash_attn": "0", "schedule": "1F1B", "software": "Megatron-DeepSpeed", "zero": "0", "source": "vTrain", "vpp": "1", "sp": "0"}
SIZES = ("gpus", "gbs", "mbs", "hidden", "heads", "layers", "seq", "tp", "dp", "pp")


def table_in(folder):
    return published.read(os.path.join(folder, "vtrain_single.csv"))


def predicted(echelon, table, sets=None):
    rows = [{**FIXED, "id": f"operators-{number}", **{name: row[name] for name in SIZES}} for number, row in enumerate(table)]
    return published.predict(echelon, rows, sets)


def errors_of(echelon, folder, sets):
    """Of each row of the table with each set of constants."""
    import numpy
    table = table_in(folder)
    seconds = numpy.array([out["seconds"] for out in predicted(echelon, table, sets)])
    return seconds / numpy.array([[float(row["iter_time_ms"]) / 1000] for row in table]) - 1


def percent_of(errors):
    return f"{100 * statistics.mean(map(abs, errors)):.1f} % | {100 * statistics.mean(errors):+.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--echelon", default="build/release/echelon")
    parser.add_argument("--constants", default="")
    arguments = parser.parse_args()
    table = table_in(arguments.folder)
    changed = {name: float(value) for name, value in (each.split("=") for each in arguments.constants.split(",") if each)}
    outs = predicted(arguments.echelon, table, [changed, changed] if changed else None)
    seconds = [out["seconds"][0] if changed else out["predicted_seconds"] for out in outs]
    errors = [each / (float(row["iter_time_ms"]) / 1000) - 1 for each, row in zip(seconds, table)]
    print(f"| column | rows | mean | bias |\n| --- | --- | --- | --- |\n| all | {len(errors)} | {percent_of(errors)} |")
    for column in ("tp", "mbs", "hidden", "pp", "dp"):
        by = collections.defaultdict(list)
        for row, error in zip(table, errors):
            by[int(row[column])].append(error)
        for value, its in sorted(by.items()):
            print(f"| {column} {value} | {len(its)} | {percent_of(its)} |")


if __name__ == "__main__":
    main()
