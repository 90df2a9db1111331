#!/usr/bin/env python3
"""Trains with Echelon, resumes a checkpoint with examples/pytorch/resume_in_pytorch.py and compares the next ten losses with those of Echelon.

usage: check_resume.py ECHELON FOLDER       FOLDER: for files, made anew
"""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import torch
import transformers

import oracle

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
from read_checkpoint import read_checkpoint  # noqa: E402
from resume_in_pytorch import load  # noqa: E402

LENGTH, SEQUENCES, VOCABULARY, SAVED, LAST = 16, 4, 48, 5, 15
MODELS = {
    "llama": ["--model.model_type=llama", "--model.num_key_value_heads=2", "--model.tie_word_embeddings=false"],
    "qwen3": ["--model.model_type=qwen3", "--model.num_key_value_heads=2", "--model.tie_word_embeddings=true"],
    "gpt2": ["--model.model_type=gpt2"],
}
SIZES = ["--model.hidden_size=32", "--model.num_hidden_layers=2", "--model.num_attention_heads=4", "--model.head_dim=8",
         "--model.intermediate_size=64", f"--model.vocab_size={VOCABULARY}", "--model.max_position_embeddings=32", "--model.initializer_range=0.2"]
LAYOUT = ["--parallelism.data_parallel_shard_degree=2", "--parallelism.zero_level=3", "--parallelism.tensor_parallel_degree=2"]


def write_data(prefix):
    """Four sequences, and every step has all of them, so that their order does not matter."""
    tokens = [(i * i + i // 3) % VOCABULARY for i in range(SEQUENCES * LENGTH + 1)]
    prefix.with_suffix(".bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 1, 2)
    prefix.with_suffix(".idx").write_bytes(header + struct.pack("<iqqq", len(tokens), 0, 0, 1))
    return torch.tensor(tokens)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    transformers.logging.disable_progress_bar()
    echelon, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokens = write_data(folder / "data")
    inputs = tokens[:-1].view(SEQUENCES, LENGTH)
    targets = tokens[1:].view(SEQUENCES, LENGTH)
    for name, model_keys in MODELS.items():
        out = folder / name
        subprocess.run([echelon, "train", *model_keys, *SIZES, *LAYOUT, f"--data.path={folder / 'data'}", f"--output.dir={out}",
                        f"--training.seq_len={LENGTH}", f"--training.global_batch_size={SEQUENCES}", "--training.micro_batch_size=1",
                        f"--training.steps={LAST}", "--training.dtype=float64", "--training.max_norm=0", "--optimizer.lr=3e-3",
                        "--lr_scheduler.warmup_steps=0", "--lr_scheduler.decay=none",
                        f"--checkpoint.interval={SAVED}", "--checkpoint.keep_latest_k=0"], check=True, stdout=subprocess.DEVNULL)
        step = out / "checkpoint" / f"step-{SAVED}"
        subprocess.run([echelon, "convert", step, out / "hf"], check=True, stdout=subprocess.DEVNULL)
        model, optimizer, scalars = load(step, out / "hf")
        config = json.loads((out / "hf" / "config.json").read_text())
        losses = [line["loss"] for line in map(json.loads, open(out / "metrics.jsonl")) if line.get("step", 0) > scalars["step"]]
        worst = 0
        for loss in losses:
            optimizer.zero_grad()
            # transformers computes norms and angles in float32 whatever the dtype, so the oracle takes its parameters.
            ours = oracle.loss(oracle.logits(config, dict(model.named_parameters()), inputs), targets)
            ours.backward()
            optimizer.step()
            worst = max(worst, abs(ours.item() - loss) / loss)
        if len(losses) != LAST - SAVED or not worst < 1e-9:
            sys.exit(f"check_resume: {name}: {len(losses)} losses differ from those of PyTorch by up to {worst:.1e}")
        # What convert makes of the last checkpoint is what the run has written, and transformers loads it.
        last = out / "checkpoint" / f"step-{LAST}"
        subprocess.run([echelon, "convert", last, out / "last"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["diff", "-r", out / "last", out / "model"], check=True)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(out / "last", dtype=torch.float64)
        weights = read_checkpoint(last)[1]["weight"]
        if not torch.equal(loaded.get_input_embeddings().weight, weights["model.embed_tokens.weight"]):
            sys.exit(f"check_resume: {name}: transformers has other embeddings than the checkpoint")
        print(f"{name}: PyTorch's next {len(losses)} losses are Echelon's, up to {worst:.1e}")


if __name__ == "__main__":
    main()
