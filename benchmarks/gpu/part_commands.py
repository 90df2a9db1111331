"""What a part of first_run is asked of: commands with a log and a deadline, tests, and steps of training. Needs nothing but Python."""

import collections
import json
import os
import shlex
import signal
import subprocess
import time

import cases


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


class Bench:
    """What a part is asked of: commands that end by its deadline and write into its log."""

    def __init__(self, a, name, end):
        self.a, self.name, self.end = a, name, end
        self.log, self.choices = a.out / f"{name}.log", []
        self.log.write_bytes(b"")

    def command(self, *words, **variables):
        words = [str(w) for w in words]
        with self.log.open("ab") as log:
            log.write(f"\n$ {shlex.join(words)}\n".encode())
            log.flush()
            begin = log.tell()
            try:
                child = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.a.out, env=dict(self.a.environment, **variables), start_new_session=True)
            except OSError as missing:
                raise Failed(f"'{words[0]}' does not start: {missing}") from missing
            try:
                status = child.wait(max(self.end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired as late:
                raise Failed(f"'{shlex.join(words)[:120]}' was not done at its deadline") from late
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
        output = self.log.read_bytes()[begin:].decode(errors="replace")
        if status != 0:
            raise Failed(f"'{shlex.join(words)[:120]}' ended with {status}: {' '.join(output.strip().splitlines()[-1:])[:300]}")
        return output

    def echelon(self, *words, **variables):
        return self.command(self.a.build / "echelon", *words, **variables)

    def tests(self, which, *options, before=()):
        program = self.a.build / "test_gpu"
        if not program.exists():
            raise Failed(f"{program} was not built")
        output = self.command(*before, program, f"--gtest_filter={which}", *options)
        passed = next((line.split("]")[1].strip() for line in output.splitlines()[::-1] if "PASSED" in line), "0 tests.")
        if passed.startswith("0 "):
            raise Failed("no test ran")
        self.choices = [line for line in output.splitlines() if line.startswith("attention") and ": " in line]
        return f"{passed.rstrip('.')} passed"

    def train(self, name, case, steps, *settings, device="cuda", dtype="bfloat16", document_tokens=None, **variables):
        """The steps of a run, as its metrics have them. `choices` then has a line for each shape of attention, with its kernels."""
        folder = self.a.out / name
        folder.mkdir(exist_ok=True)
        cases.write_tokens(cases.sizes_of(case)["vocab"], 64 * case["tokens"] + 1, folder / "tokens", document_tokens)
        config = folder / "config.toml"
        config.write_text(cases.echelon_config(case, steps, folder / "tokens", folder, "", device, dtype))
        (folder / "metrics.jsonl").unlink(missing_ok=True)
        said = self.echelon("train", config, "--json", *settings, **variables)
        self.choices = json.loads(said.splitlines()[-1]).get("device_choices", "").splitlines()
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [s for s in lines if "step_seconds" in s]

    def kernels(self):
        """Which kernels computed attention, and why cuDNN refused: of each different answer how often it was given."""
        answers = collections.Counter(line.split(": ", 1)[1] for line in self.choices)
        return "attention by " + "; ".join(f"{words} ({count})" for words, count in answers.most_common(6)) if answers else ""

    def case(self, name, **changes):
        return dict(cases.ALL_CASES[("tiny-gpt2" if "gpt2" in name else "tiny-llama") if self.a.dry_run else name], **changes)
