"""Writes the orders of PyTorch's pipeline schedules as PyTorch's own CSV files: an oracle for src/schedule.

Run it with scripts/interop_venv's Python; the files are kept, so that the tests need none. NAME-p-m-v.csv: p ranks, m microbatches, v stages a rank.
"""

import pathlib

from torch.distributed.pipelining import schedules


class OrderOnly:
    """A stage that knows its place and computes nothing."""

    def __init__(self, index: int, num_stages: int, rank: int, num_ranks: int):
        self.stage_index, self.num_stages, self.group_rank, self.group_size = index, num_stages, rank, num_ranks
        self.has_backward, self.submod, self.device, self.p2p_per_edge = False, None, "cpu", False
        self.is_first, self.is_last = index == 0, index == num_stages - 1
        self.stage_index_to_group_rank = {stage: stage % num_ranks for stage in range(num_stages)}


GRID = {
    "GPipe": [(3, 5, 1)],
    "1F1B": [(4, 8, 1)],
    "LoopedBFS": [(2, 4, 2), (3, 5, 3)],
    "Interleaved1F1B": [(2, 4, 2), (4, 8, 2), (3, 9, 3), (4, 6, 2)],
    "InterleavedZeroBubble": [(2, 4, 2), (4, 8, 2), (3, 9, 3), (4, 6, 2)],
    "ZBVZeroBubble": [(2, 4, 2), (4, 10, 2), (4, 3, 2), (3, 6, 2)],
    "DualPipeV": [(2, 4, 2), (4, 10, 2), (3, 7, 2)],
}

if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    for name, shapes in GRID.items():
        for p, m, v in shapes:
            kind = schedules.get_schedule_class(name)
            if v == 1:
                order = kind(OrderOnly(0, p, 0, p), n_microbatches=m)._get_pipeline_order()
                schedule = schedules._PipelineScheduleRuntime([OrderOnly(0, p, 0, p)], n_microbatches=m)
                schedule.pipeline_order = order
            else:
                schedule = kind([OrderOnly(turn * p, p * v, 0, p) for turn in range(v)], n_microbatches=m)
            schedule._dump_csv(here / f"{name}-{p}-{m}-{v}.csv", format="compute_only")
            if (name, p) == ("ZBVZeroBubble", 2):
                schedule._dump_csv(here / f"{name}-{p}-{m}-{v}-with-messages.csv", format="compute_comms")
