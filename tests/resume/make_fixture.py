#!/usr/bin/env python3
"""Makes tests/resume/fixtures/format-N: a checkpoint of a small run of two ranks, its data, and the losses of the steps after it.

usage: make_fixture.py ECHELON FOLDER       FOLDER: made anew. A released format's fixture is never made again: newer programs must read it.
"""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

LENGTH, VOCABULARY, SAVED, LAST = 8, 32, 2, 5
KEYS = ["--model.model_type=llama", "--model.hidden_size=16", "--model.num_hidden_layers=1", "--model.num_attention_heads=2", "--model.num_key_value_heads=1",
        "--model.head_dim=8", "--model.intermediate_size=16", f"--model.vocab_size={VOCABULARY}", "--model.max_position_embeddings=16",
        "--model.tie_word_embeddings=true", "--model.initializer_range=0.2", f"--training.seq_len={LENGTH}", "--training.global_batch_size=4",
        "--training.micro_batch_size=1", f"--training.steps={LAST}", "--training.dtype=float16", "--grad_scaler.init_scale=1024",
        "--optimizer.moments_dtype=bfloat16", "--parallelism.data_parallel_shard_degree=2", f"--checkpoint.interval={SAVED}",
        "--checkpoint.keep_latest_k=0", "--lr_scheduler.warmup_steps=0", "--lr_scheduler.decay=none"]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    echelon, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokens = [(i * i + i // 3) % VOCABULARY for i in range(100)]
    (folder / "data.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    (folder / "data.idx").write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 1, 2) + struct.pack("<iqqq", len(tokens), 0, 0, 1))
    subprocess.run([echelon, "train", *KEYS, "--data.path=data", "--output.dir=out"], check=True, cwd=folder)
    shutil.move(folder / "out" / "checkpoint" / f"step-{SAVED}", folder / f"step-{SAVED}")
    lines = [json.loads(line) for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in lines if line.get("step", 0) > SAVED}
    (folder / "losses.json").write_text(json.dumps(losses) + "\n")
    shutil.rmtree(folder / "out")


if __name__ == "__main__":
    main()
