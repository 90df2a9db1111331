#!/usr/bin/env python3
"""Makes tests/interop/generated.json: 32 tokens that transformers generates greedily, with its cache, from each fixture.

usage: make_generated.py [--check]      --check: makes them again and compares with the committed file

Of each fixture: the fields of config.json that make room for them, the 16 tokens of the prompt, and the 32 after it. The prompt is that sequence of the fixtures'
text after which most different tokens come, each with a logit that leads the second one clearly, so that float32 cannot choose another.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

from make_fixtures import ALL, FIXTURES, auto_class, batch, require

COMMITTED = Path(__file__).parent / "generated.json"
NUM_NEW, NUM_PROMPTS, LEAST_LEAD = 32, 12, 3e-3
ROOM = dict(max_position_embeddings=64)
# All positions on the same side of longrope's original length; GPT-2 has a weight for each position.
ROOM_OF = {"gpt2": {}, "phi3_short": dict(max_position_embeddings=128, original_max_position_embeddings=64, rope_parameters=dict(original_max_position_embeddings=64))}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    made = {name: generated(name, ROOM_OF.get(name, ROOM)) for name in ALL}
    if sys.argv[1:] == ["--check"]:
        require(json.loads(COMMITTED.read_text()) == made, "generated.json is not what transformers generates")
        return print("generated.json: equals what transformers generates")
    if sys.argv[1:]:
        sys.exit(__doc__)
    COMMITTED.write_text("{\n" + ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in made.items()) + "\n}\n")


def generated(name, room):
    fields = json.loads((FIXTURES / name / "config.json").read_text())
    if "text_config" in fields:
        room = {"text_config": room}
    config = transformers.AutoConfig.for_model(**merged(fields, room))
    model = auto_class(config).from_pretrained(FIXTURES / name, config=config, attn_implementation="eager", dtype=torch.float32).eval()
    best = max(map(lambda n: outcome(model, config, n), range(NUM_PROMPTS)), key=lambda each: each[0])
    require(best[0] > 0, f"{name}: float32 could choose another token after every prompt")
    print(f"{name}: {best[0]} different tokens")
    return {"config": room, "prompt": best[1], "tokens": best[2]}


def merged(fields, more):
    return fields | {key: merged(fields[key], value) if isinstance(value, dict) else value for key, value in more.items()}


def outcome(model, config, n):
    """How many different tokens come, or 0 if any of them leads by too little; the prompt, the tokens."""
    prompt, _ = batch(n, 1, config.get_text_config().vocab_size)
    options = dict(max_new_tokens=NUM_NEW, min_new_tokens=NUM_NEW, do_sample=False, output_scores=True, return_dict_in_generate=True, pad_token_id=0)
    result = model.generate(prompt.long(), attention_mask=torch.ones_like(prompt), **options)  # without it, tokens 0 would be padding
    tokens = result.sequences[0, prompt.shape[1] :].tolist()
    first, second = torch.stack(result.scores)[:, 0].topk(2).values.unbind(1)
    return (len(set(tokens)) if (first - second).min() >= LEAST_LEAD else 0), prompt[0].tolist(), tokens


if __name__ == "__main__":
    main()
