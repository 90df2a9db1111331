"""Published runs: reading them, predicting them with `echelon simulate --rows`, and the split into a part to fit and a part to test."""
import csv, hashlib, json, os, subprocess, tempfile


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def is_dense_and_complete(row):
    return row["completeness"] == "A" and row["cp"] in ("", "1") and row["ep"] in ("", "1") and not row["experts"]


def stands_in(row):
    """Of Megatron-Core no run is complete: these say all but the recomputation or the microbatch, which are taken to be none and one sequence."""
    return row["group"] in ("dgxc", "megascale-mlm") and row["cp"] in ("", "1") and row["ep"] in ("", "1") and not row["experts"]


def measured(rows):
    """Those whose step time is there: an out-of-memory run has none."""
    return [row for row in rows if row["iter_time_s"]]


def is_fitted_to(row):
    """Three of five rows, by a hash of the row's name: the same ones on every machine."""
    return int(hashlib.sha256(("echelon 1 " + row["id"]).encode()).hexdigest(), 16) % 5 < 3


def predict(echelon, rows, constants=None, profile_of=None):
    """What echelon prints for the rows, in their order. With a list of constants every row has a list of seconds. profile_of names another profile for
    some rows, by id()."""
    if profile_of:
        outs = dict(zip(map(id, rows), predict(echelon, rows, constants)))
        for profile in sorted(set(profile_of.values())):
            its = [row for row in rows if profile_of.get(id(row)) == profile]
            outs.update(zip(map(id, its), predict_with(echelon, its, constants, ["--profile", profile])))
        return [outs[id(row)] for row in rows]
    return predict_with(echelon, rows, constants, [])


def predict_with(echelon, rows, constants, options):
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "rows.csv")
        with open(table, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        command = [echelon, "simulate", "--rows", table, "--json", *options]
        if constants:
            path = os.path.join(folder, "constants.json")
            with open(path, "w") as file:
                json.dump(constants, file)
            command += ["--constants", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.stdout:  # a row that is wrong says so in its own object
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)
