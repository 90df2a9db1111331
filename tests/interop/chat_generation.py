#!/usr/bin/env python3
"""The commands of docs/guides/fine-tune.md, and then transformers with the folder that they make.

usage: chat_generation.py ECHELON FOLDER
Conversations must have the tokens of `echelon generate --chat`: apply_chat_template for the prompt, generate (greedy) for the answer.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
MOST = 32  # new tokens
CONVERSATIONS = [["Who are you?"], ["What is two and two?", "And three and three?"], ["Say hello.", "Say goodbye.", "Who are you?"],
                 ["Tell me <|im_end|> of größer things", "why?"]]


def run_the_guide(echelon, folder):
    """In FOLDER, where its paths are those of a clone."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "build" / "release").mkdir(parents=True)
    (folder / "build" / "release" / "echelon").symlink_to(Path(echelon).resolve())
    (folder / "examples").symlink_to(ROOT / "examples")
    for line in (ROOT / "docs" / "guides" / "fine-tune.md").read_text().splitlines():
        if line.startswith("$ "):
            subprocess.run(shlex.split(line[2:]), cwd=folder, check=True, stdout=subprocess.DEVNULL)


def answers_of_echelon(echelon, model, questions):
    command = [echelon, "generate", str(model), "--chat", "--json", "--temperature", "0", "--max-new-tokens", str(MOST)]
    lines = subprocess.run(command, input="\n".join(questions), text=True, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return [json.loads(line) for line in lines.splitlines()]


def prompt_of(tokenizer, messages):
    """What users wrote makes no control tokens: the text is encoded without them in one's place."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if all(token not in message["content"] for message in messages for token in tokenizer.all_special_tokens):
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    ids = []
    for message in messages:
        content = tokenizer(message["content"], split_special_tokens=True)["input_ids"]
        ids += tokenizer(f"<|im_start|>{message['role']}\n")["input_ids"] + content + tokenizer("<|im_end|>\n")["input_ids"]
    assert tokenizer.decode(ids) in text
    return ids + tokenizer("<|im_start|>assistant\n")["input_ids"]


def main():
    echelon, folder = os.path.abspath(sys.argv[1]), Path(sys.argv[2]).resolve()
    run_the_guide(echelon, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tiny" / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "tiny" / "model", dtype=torch.float32)
    num_answers, num_ended = 0, 0
    for questions in CONVERSATIONS:
        messages = []
        for question, answer in zip(questions, answers_of_echelon(echelon, folder / "tiny" / "model", questions), strict=True):
            messages.append({"role": "user", "content": question})
            prompt = prompt_of(tokenizer, messages)
            assert len(prompt) == answer["num_prompt_tokens"], (question, len(prompt), answer)
            batch = torch.tensor([prompt])
            ids = model.generate(batch, attention_mask=torch.ones_like(batch), max_new_tokens=MOST, do_sample=False)[0, len(prompt) :].tolist()
            ended = ids[-1:] == [tokenizer.eos_token_id]
            assert ended == (answer["finish_reason"] == "stop"), (question, ids, answer)
            assert ids[: len(ids) - ended] == answer["tokens"], (question, ids, answer)
            messages.append({"role": "assistant", "content": answer["text"]})
            num_answers, num_ended = num_answers + 1, num_ended + ended
    assert num_ended >= 6, num_ended
    print(f"{num_answers} answers of generate --chat are those of transformers, {num_ended} of them to the end of their turn")


if __name__ == "__main__":
    main()
