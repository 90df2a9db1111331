#!/usr/bin/env python3
"""Chat templates with the constructs of published ones, on conversations: what transformers makes of them.

usage: chat_templates.py --make     makes tests/data/templates/chats.json anew
       chat_templates.py --check    fails if that file is not what transformers gives
A result is the CRC-32 of the text, the number of its token ids, their CRC-32 and that of which ones are trained: what
apply_chat_template marks where the template has {% generation %}, else each answer from the end of its prompt to the control token after it;
and the CRC-32 of the ids of the prompt for the last answer.
Tokenizers are those of tests/data/pipelines with the control tokens of the template.
"""

import argparse
import array
import json
import random
import tempfile
import zlib
from pathlib import Path

from transformers import PreTrainedTokenizerFast

FOLDER = Path(__file__).resolve().parent.parent / "data" / "templates"
IM = ["<|im_start|>", "<|im_end|>"]
# pipeline, control tokens, other added tokens, bos, eos
TEMPLATES = {
    "chatml": ("qwen2", IM, [], None, "<|im_end|>"),
    "llama2": ("llama2", ["<s>", "</s>"], [], "<s>", "</s>"),
    "llama3": ("llama3", ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], [], "<|begin_of_text|>", "<|eot_id|>"),
    "mistral": ("mistral_metaspace", ["<s>", "</s>", "[INST]", "[/INST]"], [], "<s>", "</s>"),
    "gemma": ("gemma", ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], [], "<bos>", "<eos>"),
    "phi4": ("o200k", IM + ["<|im_sep|>"], [], None, "<|im_end|>"),
    "qwen2": ("qwen2", IM, ["<tool_call>", "</tool_call>"], None, "<|im_end|>"),
    "qwen3": ("qwen2", IM, ["<think>", "</think>"], None, "<|im_end|>"),
    "smollm3": ("llama3", IM, ["<think>", "</think>"], None, "<|im_end|>"),
    "olmo2": ("olmo2", ["<|endoftext|>"], [], "<|endoftext|>", "<|endoftext|>"),
    "granite": ("starcoder2", ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"], [], "<|end_of_text|>", "<|end_of_text|>"),
    "glm": ("llama3", ["[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|system|>", "<|observation|>"], [], None, "<|endoftext|>"),
    "deepseek": ("deepseek3", ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"], ["<｜User｜>", "<｜Assistant｜>"], "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "tools": ("phi3", IM, ["<tool_call>", "</tool_call>"], None, "<|im_end|>"),
}
STRIPPED = {"llama2": (False, True), "tools": (False, False)}  # lstrip, rstrip of the control tokens
WORDS = ["the", "there", "größer", "naïve", "東京", "int main() {\n    return 0;\n}", "😀", "1234", "it's", "{{ x }}", "a  b", "\n\n", "<b>", "\"q\"", "\\n", "e\u0301", "mixed", "tokens"]
TOOLS = [{"type": "function", "function": {"name": name, "description": f" does {name} things ", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer", "default": 3}, "any": {}}}}} for name in ("weather", "Search")]


def conversations():
    chance = random.Random(25)
    for number in range(60):
        text = lambda mark: f"{mark}{number} " + " ".join(chance.choices(WORDS, k=chance.randrange(1, 9))) + " end"
        messages = [{"role": "system", "content": text("s")}] if number % 3 == 0 else []
        for turn in range(chance.randrange(1, 4)):
            messages.append({"role": "user", "content": text(f"u{turn}.")})
            messages.append({"role": "assistant", "content": text(f"a{turn}.")})
            if number % 7 == 6:
                messages[-1]["content"] = f"<think>\nwell {turn}\n</think>\n\n" + messages[-1]["content"]
        yield {"messages": messages, **({"tools": TOOLS} if number % 5 == 0 else {})}


def tokenizer_of(name):
    pipeline, control, others, bos, eos = TEMPLATES[name]
    spec = json.loads((FOLDER.parent / "pipelines" / f"{pipeline}.json").read_text())
    known = {token["content"] for token in spec["added_tokens"]}
    first = 1 + max(max(token["id"] for token in spec["added_tokens"]), max(spec["model"]["vocab"].values()))
    lstrip, rstrip = STRIPPED.get(name, (False, False))
    for content in [c for c in control + others if c not in known]:
        spec["added_tokens"].append({"id": first, "content": content, "single_word": False, "lstrip": lstrip, "rstrip": rstrip,
                                     "normalized": False, "special": content in control})
        first += 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(spec, ensure_ascii=False))
        return spec["added_tokens"], PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token=bos, eos_token=eos, clean_up_tokenization_spaces=False)


def crc(values, code):
    return zlib.crc32(array.array(code, values).tobytes())


def end_of_prompt(text, tokenizer, messages, arguments):
    """Where the prompt for the next answer ends, if the text starts with it."""
    try:
        prompt, plain = (tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=adds, **arguments) for adds in (True, False))
    except Exception:  # the template refuses this conversation
        return len(text)
    return len(prompt) if prompt != plain and text.startswith(prompt) else len(text)


def answers_mask(text, encoding, conversation, control, tokenizer, arguments):
    """Each answer from the end of its prompt to the control token after it, by a search for the text of the answer."""
    mask, at = [0] * len(encoding["input_ids"]), 0
    for number, message in enumerate(conversation["messages"]):
        wanted = message["content"].split("</think>")[-1]
        if wanted not in text[at:]:
            wanted = wanted.lstrip("\n")
        shown = text.find(message["content"], at)
        start = shown if shown >= 0 else text.find(wanted, at)
        if start < 0:  # a system prompt that the template leaves out
            continue
        at = text.find(wanted, start) + len(wanted)
        if message["role"] != "assistant":
            continue
        start = min(start, end_of_prompt(text, tokenizer, conversation["messages"][:number], arguments))
        ends = [text.find(c, at) + len(c) for c in control if text.find(c, at) >= 0]
        end = min(ends) if ends else len(text)
        for i, (first, last) in enumerate(encoding["offset_mapping"]):
            if first < end and last > start:
                mask[i] = 1
    return mask


def result_of(name, source, tokenizer, conversation):
    has_marks = "generation" in source.replace("add_generation", "")
    arguments = dict(chat_template=source, tools=conversation.get("tools"))
    text = tokenizer.apply_chat_template(conversation["messages"], tokenize=False, **arguments)
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    marked = tokenizer.apply_chat_template(conversation["messages"], return_dict=True, return_assistant_tokens_mask=has_marks, **arguments)
    assert marked["input_ids"] == encoding["input_ids"]
    mask = marked["assistant_masks"] if has_marks else answers_mask(text, encoding, conversation, TEMPLATES[name][1], tokenizer, arguments)
    ids = encoding["input_ids"]
    prompt = tokenizer.apply_chat_template(conversation["messages"][:-1], add_generation_prompt=True, return_dict=True, **arguments)
    return [zlib.crc32(text.encode()), len(ids), crc(ids, "i"), crc(mask, "B"), crc(prompt["input_ids"], "i")]


def fixture():
    templates = {}
    chats = list(conversations())
    for name, (pipeline, _, _, bos, eos) in TEMPLATES.items():
        source = (FOLDER / f"{name}.jinja").read_text()
        added, tokenizer = tokenizer_of(name)
        templates[name] = {"pipeline": pipeline, "added_tokens": added, "bos_token": bos, "eos_token": eos,
                           "results": [result_of(name, source, tokenizer, chat) for chat in chats]}
    return {"conversations": chats, "templates": templates}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = json.dumps(fixture(), ensure_ascii=False, separators=(",", ":")) + "\n"
    file = FOLDER / "chats.json"
    if arguments.make:
        file.write_text(text)
    elif not arguments.check or file.read_text() != text:
        raise SystemExit("tests/data/templates/chats.json is not what transformers gives; chat_templates.py --make makes it anew")


if __name__ == "__main__":
    main()
