"""Builds the program of another commit, in a git worktree below build/base, and the working tree's own."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEFORE_REFACTORING = "bd9838f30b18ebb8ceec5ac6b57a5de65e7f4e3d"  # the reformatting; every later commit keeps its bits
GPU_PLUGIN = "libechelon_cuda_emulated.so"  # built with the tests


def build_base(commit, with_emulated_gpu):
    """The folder with the commit's program, which is built once."""
    commit = output_of("git", "rev-parse", "--verify", f"{commit}^{{commit}}")
    source = ROOT / "build/base" / commit
    if not (source / "CMakeLists.txt").exists():
        output_of("git", "worktree", "prune")
        output_of("git", "worktree", "add", "--force", "--detach", str(source), commit)
    if not (source / "build/release/build.ninja").exists() or (with_emulated_gpu and not has_tests(source)):
        tests = "ON" if with_emulated_gpu else "OFF"
        say(f"configuring {commit[:7]}")
        output_of("cmake", "--preset", "release", f"-DECHELON_TESTS={tests}", "-DECHELON_CUDA=OFF", folder=source)
    return build(source, with_emulated_gpu)


def build_working_tree(with_emulated_gpu):
    """The folder with the working tree's program. The emulated GPU is built where the tests are configured."""
    if not (ROOT / "build/release/build.ninja").exists():
        raise SystemExit("build/release is not configured: run scripts/build or scripts/test first")
    return build(ROOT, with_emulated_gpu and has_tests(ROOT))


def build(source, with_emulated_gpu):
    targets = ["echelon"] + (["echelon_cuda_emulated_plugin"] if with_emulated_gpu else [])
    jobs = output_of(str(ROOT / "scripts/num_jobs"))
    say(f"building {' and '.join(targets)} of {source}")
    output_of("cmake", "--build", "build/release", "--parallel", jobs, "--target", *targets, folder=source)
    return source / "build/release"


def has_tests(source):
    return "ECHELON_TESTS:BOOL=ON" in (source / "build/release/CMakeCache.txt").read_text()


def output_of(*command, folder=ROOT):
    # With paths relative to the source tree, ccache knows a file of one tree in the other.
    environment = {"CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"} | dict(os.environ)
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed in {folder}:\n{done.stdout.decode()[-4000:]}")
    return done.stdout.decode().strip()


def say(line):
    print(line, file=sys.stderr, flush=True)
