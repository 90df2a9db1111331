"""What one run computes: its steps, its weights as a digest of each tensor, and text that its model writes. Of a
command that trains nothing, its answer."""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile

import base_program

COMPARED = ["step", "loss", "grad_norm", "loss_scale", "skipped", "lr", "tokens", "validation_loss"]
NOTED = ["memory_peak_bytes", "comm_bytes"]  # a change is reported, but it is no difference of bits
SECONDS = 300  # a run that takes longer has hung


class Program:
    """A built program with its plug-in for the emulated GPU, and the kept results of earlier runs, if any."""

    def __init__(self, folder, inputs, results=None):
        self.path, self.plugin = folder / "echelon", folder / base_program.GPU_PLUGIN
        self.inputs, self.results = inputs, results
        files = [self.path] + ([self.plugin] if self.plugin.exists() else [])
        self.digest = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]

    def trajectory(self, config, instruction_set):
        command, environment = self.command(config), self.environment(config, instruction_set)
        key = json.dumps([self.digest, command, environment, processor()])
        kept = self.results and self.results / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        if kept and kept.exists():
            return json.loads(kept.read_text())
        with tempfile.TemporaryDirectory(dir=self.inputs) as output:
            trajectory = self.run(config, command, environment, pathlib.Path(output))
        if kept and "error" not in trajectory:
            kept.write_text(json.dumps(trajectory))
        return trajectory

    def command(self, config):
        if config.verb:
            return [str(self.path), *(word.replace("examples/", f"{self.inputs}/examples/") for word in config.verb)]
        options = {
            "data.path": f"{self.inputs}/train", "data.validation_path": f"{self.inputs}/validation",
            "checkpoint.tokenizer": f"{self.inputs}/tokenizer.json", "comm.timeout_seconds": 120,
        }  # fmt: skip
        options |= config.options
        if "parallelism.pipeline_parallel_schedule_csv" in options:
            options["parallelism.pipeline_parallel_schedule_csv"] = f"{self.inputs}/schedule.csv"
        command = [str(self.path), "train", *(f"--{key}={value}" for key, value in options.items())]
        if config.launch == "mpi":
            return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(config.num_ranks()), *command]
        return command

    def environment(self, config, instruction_set):
        environment = dict(config.environment)
        if instruction_set != "widest":
            environment["ECHELON_INSTRUCTION_SET"] = instruction_set
        if config.is_on_gpus():
            environment["ECHELON_CUDA_PLUGIN"] = str(self.plugin)
        if config.launch == "gpus":
            environment |= {"LD_PRELOAD": f"{self.inputs}/own_gpus.so", "EMULATED_GPUS": str(config.num_ranks())}
        return environment

    def run(self, config, command, environment, output):
        said, error = run(command if config.verb else [*command, f"--output.dir={output}"], environment)
        if error:
            return {"error": error}
        if config.verb:
            return {"answer": json.loads(said)}
        model = output / "model"
        if not model.exists():  # of programs whose checkpoints were models
            model = next(iter((output / "checkpoint").glob("step-*")), None)
        if model is None:
            return {"error": "no checkpoint was written"}
        steps = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        steps = [{key: step[key] for key in COMPARED + NOTED if key in step} for step in steps]
        trajectory = {"steps": steps, "tensors": tensors_of(model / "model.safetensors")}
        if config.generates:
            options = ["--max-new-tokens=16", "--temperature=0.9", "--prompt=The ranks", "--device=cpu", "--json"]
            text, error = run([str(self.path), "generate", f"--model={model}", *options], environment)
            trajectory["text"] = error or json.loads(text)["text"]
        return trajectory


def run(command, environment):
    """Standard output, and the last line of what a failed command said, else ''."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ECHELON_", "OMP_", "OPENBLAS_", "OMPI_"))}
    process = subprocess.Popen(
        command, cwd=base_program.ROOT, env=inherited | environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "", f"it hung for {SECONDS} s"
    if process.returncode == 0:
        return out.decode(), ""
    said = [line for line in err.decode(errors="replace").splitlines() if line.startswith("echelon:")]
    return "", f"status {process.returncode}, {said[-1] if said else err.decode(errors='replace')[-300:].strip()}"


def tensors_of(path):
    """Of each tensor its dtype, shape and the digest of its bytes; the file's metadata may differ."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    data = memoryview(raw)[8 + length :]
    digest = {name: hashlib.sha256(data[slice(*t["data_offsets"])]).hexdigest() for name, t in header.items()}
    return {name: [t["dtype"], t["shape"], digest[name]] for name, t in sorted(header.items())}


def processor():
    """What bits depend on beyond the program: the kind of processor and the cores that ranks share."""
    names = {line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")}
    return [sorted(names), len(os.sched_getaffinity(0))]


def missing_for(config, instruction_set, plugins):
    """Why this machine cannot run a config, or ''."""
    if config.launch == "mpi" and shutil.which("mpirun") is None:
        return "there is no mpirun"
    if config.is_on_gpus() and not all(plugin.exists() for plugin in plugins):
        return "the emulated GPU is not built (cmake --preset release -DECHELON_TESTS=ON)"
    native = config.environment.get("ECHELON_BFLOAT16_PRODUCTS") == "native"
    if native and not (instruction_set == "widest" and "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text()):
        return "there are no dot products of bfloat16"
    return ""
