"""PyTorch's side: one rank of FSDP2 over gloo that trains GPT-2 124M in float32 and saves and loads it with DCP. torchrun starts it; rank 0 prints one JSON object."""

import argparse
import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import disk

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "against_pytorch"))
import cases  # noqa: E402
import models  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--folder", type=pathlib.Path, required=True)
    p.add_argument("--interval", type=int, required=True)
    p.add_argument("--saves", type=int, required=True)
    p.add_argument("--seq-len", type=int, required=True)
    a = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run = Run(a.seq_len)
    # Threads that share a group mix up the order of its collectives, and hang.
    run.group_of_saves = dist.new_group(backend="gloo")
    run.steps(1)  # makes the moments
    result = {"plain": phase(lambda: run.steps(a.interval * a.saves))}
    result["save"] = phase(lambda: save(run, a.folder / "save"))
    result["bytes"] = disk.num_bytes_of(a.folder / "save")
    result["async"] = phase(lambda: save_in_background(run, a))
    result["load"] = phase(lambda: load(run, a.folder / "save"))
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # FSDP over gloo has a thread that none joins


class Gpt2WithLoss(models.Gpt2):
    def forward(self, tokens, targets):
        return F.cross_entropy(F.linear(super().forward(tokens).flatten(0, 1), self.embedding.weight), targets.flatten())


class Run:
    def __init__(self, seq_len):
        torch.manual_seed(1)
        self.module = Gpt2WithLoss(cases.GPT2_124M)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in self.module.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.module, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=3e-4, fused=True)
        self.tokens = torch.randint(2048, (1, seq_len + 1))

    def steps(self, count):
        """Seconds of each."""
        seconds = []
        for _ in range(count):
            begin = time.perf_counter()
            self.module(self.tokens[:, :-1], self.tokens[:, 1:]).backward()
            nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            seconds.append(time.perf_counter() - begin)
        return {"steps": seconds}

    def state(self):
        model, optimizer = get_state_dict(self.module, self.optimizer)
        return {"model": model, "optimizer": optimizer}


def save(run, folder):
    _, seconds = timed(lambda: dcp.save(run.state(), checkpoint_id=folder))
    return {"seconds": seconds}


def save_in_background(run, a):
    """async_save every few steps: how long the call keeps the ranks, the steps meanwhile, and the seconds until this rank's part was written."""
    result = {"stalls": [], "steps": [], "written": []}
    for number in range(a.saves):
        folder = a.folder / f"async-{number}"
        begin = time.perf_counter()

        def start():
            future = dcp.async_save(run.state(), checkpoint_id=folder, process_group=run.group_of_saves)
            future.add_done_callback(lambda _, begin=begin: result["written"].append(time.perf_counter() - begin))
            return future

        future, seconds = timed(start)
        result["stalls"].append(seconds)
        result["steps"] += run.steps(a.interval)["steps"]
        future.result()
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder)
    return result


def load(run, folder):
    if dist.get_rank() == 0:
        disk.drop_from_memory(folder)
    before = disk.read_bytes()

    def read():
        state = run.state()
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(run.module, run.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    _, seconds = timed(read)
    return {"seconds": seconds, "read_bytes": total(disk.read_bytes() - before)}


def timed(work):
    """What work returns, and the seconds until all ranks have done it."""
    dist.barrier()
    begin = time.perf_counter()
    result = work()
    dist.barrier()
    return result, time.perf_counter() - begin


def phase(work):
    """What work returns, with the largest memory of all ranks together meanwhile."""
    dist.barrier()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
    result = work()
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return result | {"peak_bytes": total(peak)}


def total(value):
    value = torch.tensor(value)
    dist.all_reduce(value)
    return value.item()


if __name__ == "__main__":
    main()
