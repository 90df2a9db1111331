"""PyTorch on processes of one thread each, over gloo: DDP, FSDP2, tensor parallel with and without sequence parallel, a 1F1B pipeline; or one process alone.

Trains a GPT-2 case of against_pytorch. Rank 0 prints one JSON object per step. torchrun starts it, but for the layout `one`.
"""

import argparse
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "against_pytorch"))
import cases  # noqa: E402
from peer import load, make_optimizer, say  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--layout", required=True, choices=LAYOUTS)
    p.add_argument("--case", required=True, choices=[name for name, case in cases.CASES.items() if case["family"] == "gpt2"])
    p.add_argument("--folder", required=True)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--microbatches", type=int, default=8, help="of the pipeline")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    if a.layout != "one":
        dist.init_process_group("gloo")
    LAYOUTS[a.layout](a, cases.CASES[a.case])
    if a.layout != "one":
        leave()


def leave():
    """Ends this process without destructors: FSDP over gloo has a thread that nobody joins, so that one in some processes would abort (SIGABRT) after its last step."""
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


class Trainer:
    """Clipping, AdamW and reporting for every layout. `is_part`: of which parameters each rank holds a part of its own; the others all ranks have alike."""

    def __init__(self, module, is_part=lambda p: isinstance(p, DTensor) and p.placements[0].is_shard()):
        self.parameters = list(module.parameters())
        self.is_part = [is_part(p) for p in self.parameters]
        # The optimizer sees this rank's part of every parameter as a plain tensor: fused AdamW takes no mixture of the two kinds.
        self.locals = nn.ParameterList(nn.Parameter(p.detach().to_local() if isinstance(p, DTensor) else p.detach()) for p in self.parameters)
        self.optimizer = make_optimizer(self.locals, "fused")

    def run(self, a, forward_backward, owner_of_loss=None):
        """forward_backward(step) returns the mean loss of this rank's sequences; `owner_of_loss`: the one rank that knows it, if not all do."""
        for number in range(a.steps):
            begin = time.perf_counter()
            loss = forward_backward(number)
            self.update()
            if owner_of_loss is not None:
                dist.broadcast(loss, owner_of_loss)
            elif dist.is_initialized():
                dist.all_reduce(loss)
                loss /= dist.get_world_size()
            if not dist.is_initialized() or dist.get_rank() == 0:
                say(step=number + 1, loss=loss.item(), step_seconds=time.perf_counter() - begin)

    def update(self):
        for part, p in zip(self.locals, self.parameters):
            part.grad = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
            p.grad = None
        grads = [part.grad for part in self.locals]
        squares = [norm.square() for norm in torch._foreach_norm(grads)]
        square = sum(squares)
        if any(self.is_part):
            square = sum(s if is_part else s / dist.get_world_size() for s, is_part in zip(squares, self.is_part))
            dist.all_reduce(square)
        norm = square.sqrt()
        torch._foreach_mul_(grads, min(1.0, cases.OPTIMIZER["max_norm"] / (norm.item() + 1e-6)))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def batch(case, folder, number, index=0, count=1):
    """Part `index` of `count` of a step's sequences."""
    tokens, targets = (torch.tensor(ids, dtype=torch.long).view(case["batch"], case["tokens"]) for ids in cases.batch(case, folder, number))
    return tokens.chunk(count)[index], targets.chunk(count)[index]


class WithLoss(nn.Module):
    """Model and loss in one forward, so that wrappers see both uses of the token table."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, targets):
        x = self.model(tokens).flatten(0, 1)
        return F.cross_entropy(F.linear(x, self.model.embedding.weight), targets.flatten())


def one(a, case):
    data_parallel(a, case, lambda module: module, 0, 1)


def ddp(a, case):
    data_parallel(a, case, lambda module: DistributedDataParallel(module, gradient_as_bucket_view=True), dist.get_rank(), dist.get_world_size())


def fsdp(a, case, reshard_after_forward=True):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def shard(module):
        for block in module.model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=reshard_after_forward)
        return fully_shard(module, mesh=mesh, reshard_after_forward=reshard_after_forward)

    data_parallel(a, case, shard, dist.get_rank(), dist.get_world_size())


def data_parallel(a, case, wrap, index, count):
    module = wrap(WithLoss(load(case, a.folder, torch.float32)))
    trainer = Trainer(module)

    def forward_backward(number):
        loss = module(*batch(case, a.folder, number, index, count))
        loss.backward()
        return loss.detach()

    trainer.run(a, forward_backward)


def tensor_parallel(a, case, sequence):
    """Blocks cut by heads and columns, table and head by the vocabulary; with `sequence`, norms and residuals by tokens (torchtitan's plan)."""
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    model = load(case, a.folder, torch.float32)
    model.head = nn.Linear(case["sizes"]["width"], case["sizes"]["vocab"], bias=False, device="meta")
    model.head.weight = model.embedding.weight
    tokens_cut = Shard(1) if sequence else Replicate()
    norm = {"norm": SequenceParallel()} if sequence else {}
    parallelize_module(model, mesh, {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=tokens_cut),
        "head": ColwiseParallel(input_layouts=tokens_cut, output_layouts=Shard(-1), use_local_output=False), **norm})  # fmt: skip
    model.head.weight = model.embedding.weight
    for block in model.blocks:
        side_by_side(block.qkv, world)
        block.heads //= world
        norms = {"norm_1": SequenceParallel(), "norm_2": SequenceParallel()} if sequence else {}
        columns, rows = ColwiseParallel(input_layouts=tokens_cut), RowwiseParallel(output_layouts=tokens_cut)
        parallelize_module(block, mesh, {"qkv": columns, "out": rows, "up": columns, "down": rows, **norms})
    trainer = Trainer(model)
    T = case["tokens"]
    mine = slice(rank * T // world, (rank + 1) * T // world) if sequence else slice(0, T)

    def forward_backward(number):
        tokens, targets = batch(case, a.folder, number)
        x = model.embedding(tokens) + model.position.weight[mine]
        for block in model.blocks:
            x = block(x)
        with loss_parallel():
            loss = F.cross_entropy(model.head(model.norm(x)).flatten(0, 1), targets.flatten())
            loss.backward()
        if sequence:
            finish_sequence_parallel(model)
        return loss.detach().full_tensor() if isinstance(loss, DTensor) else loss.detach()

    trainer.run(a, forward_backward)


def side_by_side(qkv, world):
    """Reorders the rows, so that each rank's part of the matrix is the q, k and v of its heads."""
    for p in qkv.parameters():
        q, k, v = (x.chunk(world) for x in p.detach().chunk(3))
        p.data = torch.cat([x for rank in range(world) for x in (q[rank], k[rank], v[rank])])


def finish_sequence_parallel(model):
    """What every rank has whole but saw only its own tokens of."""
    dist.all_reduce(model.position.weight.grad)
    for module in model.modules():
        for p in module.parameters(recurse=False):
            if isinstance(p.grad, DTensor) and p.grad.placements[0].is_partial():
                p.grad = p.grad.redistribute(placements=[Replicate()])


class Stage(nn.Module):
    """Half of the blocks, with the tables before or the norm and head after them."""

    def __init__(self, model, rank):
        super().__init__()
        half = len(model.blocks) // 2
        self.is_first = rank == 0
        self.blocks = model.blocks[:half] if self.is_first else model.blocks[half:]
        self.table = model.embedding.weight
        if self.is_first:
            self.position = model.position
        else:
            self.norm = model.norm

    def forward(self, x):
        if self.is_first:
            x = F.embedding(x, self.table) + self.position.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return x if self.is_first else F.linear(self.norm(x), self.table)


def pipeline(a, case):
    rank, world = dist.get_rank(), dist.get_world_size()
    assert world == 2, "the pipeline is written for two stages"
    module = Stage(load(case, a.folder, torch.float32), rank)
    trainer = Trainer(module, is_part=lambda p: p is not module.table)  # both stages hold the tied table and add up its gradients
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, a.microbatches, loss_fn=lambda y, targets: F.cross_entropy(y.flatten(0, 1), targets.flatten()))

    def forward_backward(number):
        tokens, targets = batch(case, a.folder, number)
        losses = []
        if rank == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=targets, losses=losses)
        dist.all_reduce(module.table.grad)
        return torch.stack(losses).mean().detach() if losses else torch.zeros(())

    trainer.run(a, forward_backward, owner_of_loss=world - 1)


LAYOUTS = {
    "one": one,
    "dp": ddp,
    "zero": fsdp,
    "zero2": lambda a, case: fsdp(a, case, reshard_after_forward=False),
    "zero3": fsdp,
    "zero3-never": lambda a, case: fsdp(a, case, reshard_after_forward=False),
    "tp": lambda a, case: tensor_parallel(a, case, sequence=False),
    "tp+sp": lambda a, case: tensor_parallel(a, case, sequence=True),
    "pp": pipeline,
}

if __name__ == "__main__":
    main()
