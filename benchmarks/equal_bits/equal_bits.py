"""Trains tiny models with the program of a base commit and with the working tree's, and compares them to the bit.

Of every config in configs.py, under avx2 and under the processor's widest instruction set: each step's loss, gradient
norm, loss scale and validation loss, each tensor of the checkpoint, and text where a config generates some. Also the
answers of simulate, plan and inspect. Both programs are built first. Results of the base are kept in build/equal_bits.
Exits with 1 if any config differs.
"""

import argparse
import concurrent.futures
import copy
import fnmatch
import json
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import base_program  # noqa: E402
import configs  # noqa: E402
from difference import first_difference, note  # noqa: E402
from trajectory import Program, missing_for, run  # noqa: E402

WORK = base_program.ROOT / "build/equal_bits"


def main():
    a = parse()
    chosen = [config for config in configs.all_configs() if matches(config, a.configs)]
    if not chosen:
        raise SystemExit(f"no config matches '{a.configs}'; --list shows all")
    if a.list:
        return print("\n".join(f"{config.name:<24}{config.launch}" for config in chosen))
    with_gpu = any(config.is_on_gpus() for config in chosen)
    base_folder = base_program.build_base(a.base, with_gpu)
    new_folder = pathlib.Path(a.build).resolve() if a.build else base_program.build_working_tree(with_gpu)
    inputs = prepare_inputs(base_folder)
    results = WORK / "results"
    results.mkdir(exist_ok=True)
    base, new = Program(base_folder, inputs, None if a.fresh else results), Program(new_folder, inputs)
    if a.self_check:
        return self_check(base)
    return compare_all(a, chosen, base, new)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--base", default=base_program.BEFORE_REFACTORING, help="the commit to compare with")
    p.add_argument("--configs", default="*", metavar="FILTER", help="names, with * and ?, separated by commas")
    p.add_argument("--jobs", type=int, default=2, choices=[1, 2], help="configs side by side")
    p.add_argument("--instruction-sets", nargs="+", default=instruction_sets(), metavar="SET", help="avx2, widest")
    p.add_argument("--tolerance", type=float, default=0.0, help="relative, of the answers of simulate and plan alone")
    p.add_argument("--fresh", action="store_true", help="run the base again, too")
    p.add_argument("--build", help="a build folder to compare as it is; build/release is not built then")
    p.add_argument("--self-check", action="store_true", help="show that differences are found")
    p.add_argument("--list", action="store_true", help="print the names of the configs")
    return p.parse_args()


def matches(config, names):
    return any(fnmatch.fnmatchcase(config.name, name) for name in names.split(","))


def instruction_sets():
    """avx2, and the widest set where there is more; it alone on other machines."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return ["avx2", "widest"] if "avx2" in flags and "avx512vl" in flags else ["widest"]


def prepare_inputs(base_folder):
    """The base's documentation as a corpus, each line a document, so that every sequence has a few; its examples; and
    what is preloaded for a GPU per rank."""
    source = base_folder.parents[1]
    corpus = WORK / f"inputs-{source.name[:7]}"
    if not (corpus / "validation.idx").exists():
        corpus.mkdir(parents=True, exist_ok=True)
        lines = [line for page in sorted((source / "docs").glob("*.md")) for line in page.read_text().splitlines()]
        text = "".join(json.dumps({"text": line}) + "\n" for line in lines if line.strip())
        written = WORK / f"lines-{source.name[:7]}.jsonl"  # prepare reads nothing from the folder that it writes
        written.write_text(text)
        options = ["--output", str(corpus), "--vocab-size=509", "--training-sample-bytes=100000"]
        error = run([str(base_folder / "echelon"), "prepare", str(written), *options], {})[1]
        if error:
            raise SystemExit(f"the corpus could not be prepared: {error}")
    (corpus / "schedule.csv").write_text(configs.SCHEDULE_CSV)
    shutil.copytree(source / "examples", corpus / "examples", dirs_exist_ok=True)
    shim = ["cc", "-O1", "-shared", "-fPIC", "-o", str(corpus / "own_gpus.so"), str(HERE / "own_gpus.c")]
    base_program.output_of(*shim)
    return corpus


def compare_all(a, chosen, base, new):
    began = time.monotonic()
    counts = {"equal": 0, "differs": 0, "skipped": 0}
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for config, (verdict, words) in zip(chosen, pool.map(lambda c: compare(a, c, base, new), chosen)):
            counts[verdict] += 1
            print(f"{verdict:<8} {config.name:<24} {words}", flush=True)
    seconds = time.monotonic() - began
    commit = base.path.parents[2].name[:7]
    print(f"{counts['equal']} equal, {counts['differs']} differ, {counts['skipped']} skipped; "
          f"base {commit}, {seconds:.0f} s")  # fmt: skip
    return 1 if counts["differs"] or not counts["equal"] else 0


def compare(a, config, base, new):
    """The verdict on a config and what the table says of it."""
    sets = a.instruction_sets if config.launch in ("threads", "mpi") else ["widest"]
    missing = {each: missing_for(config, each, [base.plugin, new.plugin]) for each in sets}
    ran = [each for each in sets if not missing[each]]
    notes = []
    for each in ran:
        before, after = (program.trajectory(config, each) for program in (base, new))
        difference = first_difference(before, after, a.tolerance)
        if difference:
            return "differs", f"{each}: {difference}"
        notes.append(note(before, after))
    if not ran:
        return "skipped", missing[sets[0]]
    return "equal", ", ".join(ran) + next((f" (but {words})" for words in notes if words), "")


def self_check(base):
    """The base compared with itself is equal; with one thing changed it differs where it should."""
    config = configs.parse("self-check", "threads", "tp=2 shard=2 generate")
    plain, base.results = base.trajectory(config, "widest"), None
    flipped, shorter = copy.deepcopy(plain), copy.deepcopy(plain)
    next(iter(flipped["tensors"].values()))[2] = "0"
    shorter["steps"].pop()
    answers = [{"answer": {"plans": [{"seconds": number, "mfu": 50 + 0.01 * number}]}} for number in range(2)]
    rows = [("again", plain, base.trajectory(config, "widest"), 0, ""),
            ("another seed", plain, changed(base, config, "training.seed", "2"), 0, "loss of step 1"),
            ("another epsilon", plain, changed(base, config, "optimizer.eps", "2e-8"), 0, "loss of step 2"),
            ("a run that fails", plain, changed(base, config, "parallelism.zero_level", "7"), 0, "working tree fails"),
            ("another tensor", plain, flipped, 0, "1 of"), ("a step less", plain, shorter, 0, "lines of steps"),
            ("another text", plain, plain | {"text": ""}, 0, "generated text"),
            ("another answer", *answers, 0, "1 of 1 values, largest change 0.0002, first plans.0.mfu"),
            ("within the tolerance", *answers, 1e-3, "")]  # fmt: skip
    num_wrong = 0
    for name, before, after, tolerance, expected in rows:
        found = first_difference(before, after, tolerance)
        is_right = expected in found and bool(expected) == bool(found)
        num_wrong += not is_right
        print(f"{'right' if is_right else 'WRONG':<8} {name:<24} {found or 'equal'}")
    return 1 if num_wrong else 0


def changed(base, config, key, value):
    other = copy.deepcopy(config)
    other.options[key] = value
    return base.trajectory(other, "widest")


if __name__ == "__main__":
    sys.exit(main())
