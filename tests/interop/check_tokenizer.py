#!/usr/bin/env python3
"""Holds Echelon's tokenizers to Hugging Face's library `tokenizers`: equal ids from equal files, in both directions.

usage: check_tokenizer.py BUILD_DIR    what test_data wrote into BUILD_DIR/tokenizers (NAME.json and ids.json), and the committed ids
       check_tokenizer.py --make       makes tests/data/tokenizers anew: NAME.json as the library writes it, the text with its ids in each, and digests of learned merges
The C++ tests compare with the committed ids and merges and need no Python.
"""

import json
import random
import sys
import unicodedata
import zlib
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FIXTURES = Path(__file__).parent.parent / "data" / "tokenizers"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
THREE_DIGITS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"  # as Llama 3 splits
ONE_DIGIT = THREE_DIGITS.replace("{1,3}", "")  # as Qwen 2 does
POOLS = [
    ["the ", "then ", "there ", "hen", " tokenizer", "tokens ", "int ", "main(", ") {\n", "    return 0;\n", "}\n\n", "#include <", ">\n"],
    ["'s", "'t", "'re", "'VE", "'m", "'ll", "'D", "’s", " it's", "don't", "'"],
    ["0", "17", "1234567", " 2026", "½", "²", "٣", "3.14", "0x1f"],
    [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u180e", "\u0085", "\u200b", "\x0b", "\x1c"],
    ["größer", "Ärger ", "naïve", "e\u0301", "a\u0323\u0302", "\u1100\u1161\u11a8", "\u212b", "Москва", "σας", "東京", "かな", "한글", "नमस्ते", "عربي", "ſ"],
    ["😀", "👍🏽", "👨‍👩‍👧", "!?", "...", "<|", "|>", "<", "==", "->", "€", "\\\""],
    ["<|endoftext|>"],
]


def split_by(*patterns):
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# name: how text is split, whether whole pieces go before merges, how it is normalized
KINDS = {
    "byte_level": (pre_tokenizers.ByteLevel(add_prefix_space=False), False, None),
    "three_digits": (split_by(THREE_DIGITS), True, None),
    "one_digit": (split_by(ONE_DIGIT), False, normalizers.NFC()),
    "chain": (split_by(r"\p{N}{1,3}", r"[一-龥\u3040-\u30ff]+", ONE_DIGIT), False, None),
}


def make_text(seed, num_parts):
    chance = random.Random(seed)
    weights = [6, 2, 2, 3, 2, 1, 0.3]
    return "".join(chance.choice(chance.choices(POOLS, weights)[0]) for _ in range(num_parts))


def corpora_to_learn():
    """Documents: prose, other scripts, code, and runs in which pairs overlap and merged pairs come again."""
    chance = random.Random(3)
    letters = lambda alphabet, count, length: ["".join(chance.choice(alphabet) for _ in range(length)) for _ in range(count)]
    parts = lambda pools, count: ["".join(chance.choice(chance.choice(pools)) for _ in range(200)) for _ in range(count)]
    return {
        "prose": parts(POOLS[:2], 12),
        "scripts": parts(POOLS[3:6], 12),
        "mixed": parts(POOLS[:6], 12),
        "two_letters": letters("aab", 6, 700) + letters("ab ", 6, 700),
        "runs": ["a" * n + " " for n in (1, 2, 3, 5, 8, 300, 7, 2)] + letters("aaabc", 8, 500) + letters("aaaaaab ", 8, 500),
    }


def learned_merges(documents, size, min_frequency):
    """A digest: a line for each merge."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=min_frequency, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(documents, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return zlib.crc32("".join(" ".join(merge) + "\n" for merge in merges).encode())


def make_merges():
    corpora = corpora_to_learn()
    digests = [[name, size, least, learned_merges(documents, size, least)]
               for name, documents in corpora.items() for size in (280, 400, 1500) for least in (1, 2, 9)]
    (FIXTURES / "merges.json").write_text(json.dumps({"corpora": corpora, "digests": digests}) + "\n")


def make():
    FIXTURES.mkdir(exist_ok=True)
    text = make_text(1, 1500)
    ids = {}
    for name, (pre_tokenizer, ignore_merges, normalizer) in KINDS.items():
        tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=450, special_tokens=["<|endoftext|>", "<|pad|>"], initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator([make_text(2, 5000)], trainer)
        tokenizer.save(str(FIXTURES / f"{name}.json"), pretty=False)
        ids[name] = tokenizer.encode(text, add_special_tokens=False).ids
    (FIXTURES / "ids.json").write_text(json.dumps({"text": text, "ids": ids}) + "\n")
    make_merges()


def check(folder):
    expected = json.loads((folder / "ids.json").read_text())
    for name, ids in expected["ids"].items():
        tokenizer = Tokenizer.from_file(str(folder / f"{name}.json"))
        theirs = tokenizer.encode(expected["text"], add_special_tokens=False).ids
        if theirs != ids:
            at = next((i for i, (a, b) in enumerate(zip(theirs, ids)) if a != b), min(len(theirs), len(ids)))
            sys.exit(f"check_tokenizer: {folder}/{name}.json gives other ids in Hugging Face's library, from token {at} of {len(ids)} on")
        text = expected["text"] if tokenizer.normalizer is None else unicodedata.normalize("NFC", expected["text"])
        if tokenizer.decode(ids, skip_special_tokens=False) != text:
            sys.exit(f"check_tokenizer: {folder}/{name}.json decodes to another text in Hugging Face's library")
        print(f"{folder.name}/{name}: the same {len(ids)} ids")


def check_merges():
    expected = json.loads((FIXTURES / "merges.json").read_text())
    for name, size, least, digest in expected["digests"]:
        if learned_merges(expected["corpora"][name], size, least) != digest:
            sys.exit(f"check_tokenizer: merges.json: {name} with {size} tokens, least count {least}, is not what the library learns")
    print(f"the same merges of {len(expected['digests'])} requests")


def main():
    if sys.argv[1:] == ["--make"]:
        make()
    elif len(sys.argv) == 2:
        check(FIXTURES)
        check(Path(sys.argv[1]) / "tokenizers")
        check_merges()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
