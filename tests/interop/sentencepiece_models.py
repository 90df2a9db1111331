#!/usr/bin/env python3
"""Models of SentencePiece, made by its trainer, and what its library makes of texts with them.

usage: sentencepiece_models.py FOLDER [--strings N] [--tokens N]    writes FOLDER/NAME.model, texts.json and expected.json
       sentencepiece_models.py --make      makes tests/data/sentencepiece anew, for the texts of tests/data/pipelines
       sentencepiece_models.py --check     fails if tests/data/sentencepiece is not what the library gives
The test SentencePieceInterop compares with a folder: for each text the CRC of the ids and that of the decoded text.
"""

import argparse
import io
import json
import random
import sys
import tempfile
from pathlib import Path

import sentencepiece

from tokenizer_pipelines import FIXTURES as TEXTS, MARK, crc, fuzzed, mixed, texts_to_learn

FIXTURES = TEXTS.parent / "sentencepiece"
# The library writes ⁇ for an unknown piece unless it is told otherwise.
COMMON = dict(normalization_rule_name="identity", unk_surface="<unk>", num_threads=1, minloglevel=2, train_extremely_large_corpus=False)
MODELS = {
    "bpe": dict(model_type="bpe", vocab_size=500, byte_fallback=True),
    "bpe_spaces": dict(model_type="bpe", vocab_size=420, add_dummy_prefix=False, remove_extra_whitespaces=False, user_defined_symbols=["<tool>", "    ", "▁▁", "\n\n"]),
    "unigram": dict(model_type="unigram", vocab_size=420),
    "unigram_spaces": dict(model_type="unigram", vocab_size=400, remove_extra_whitespaces=False),
    "bpe_map": dict(model_type="bpe", vocab_size=800, byte_fallback=True, normalization_rule_tsv="rules"),
    "unigram_map": dict(model_type="unigram", vocab_size=600, normalization_rule_tsv="rules"),
}
# With the trainer's own rules, whose table has 240 kB.
LARGE_MODELS = {
    "bpe_nmt_nfkc": dict(model_type="bpe", vocab_size=900, byte_fallback=True, normalization_rule_name="nmt_nfkc"),
    "bpe_nfkc_cf_spaces": dict(model_type="bpe", vocab_size=900, byte_fallback=True, normalization_rule_name="nfkc_cf", remove_extra_whitespaces=False),
    "unigram_nmt_nfkc": dict(model_type="unigram", vocab_size=600, normalization_rule_name="nmt_nfkc"),
}
# Sequences of several characters, one of which starts another; spaces; a removal; a replacement that has a rule itself.
RULES = {"\u00e9": "e", "e\u0301": "e", "e": "E", "eo": "\u00f6", "fi": "fi", "\ufb01": "fi", "\u3000": " ", "\t": " ", "\u200b": "", "\u00fc": "ue", "\u00a8": " \u0308", "\uff41": "a", "\u2460": "(1)", "ab": "ba", "abc": "x", "\u0301": "'"}


def write_rules(path):
    hexadecimal = lambda text: " ".join(f"{ord(c):X}" for c in text)
    path.write_text("".join(f"{hexadecimal(key)}\t{hexadecimal(value)}\n" for key, value in RULES.items()))


def train(options):
    model = io.BytesIO()
    texts = [line for text in texts_to_learn() for line in text.replace("\0", "").splitlines() if line]
    options = COMMON | options
    with tempfile.TemporaryDirectory() as folder:
        if "normalization_rule_tsv" in options:
            write_rules(Path(folder) / "rules")
            options["normalization_rule_tsv"] = f"{folder}/rules"
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, hard_vocab_limit=False, **options)
    return model.getvalue()


def expected_of(path, texts):
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids = library.encode(texts)
    return "".join(f"{crc(one, ''):08x}{crc([], library.decode(one)):08x}" for one in ids), sum(map(len, ids))


def write(folder, texts):
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, options in MODELS.items() if folder == FIXTURES else (MODELS | LARGE_MODELS).items():
        is_made = folder == FIXTURES or name in LARGE_MODELS
        (folder / f"{name}.model").write_bytes(train(options) if is_made else (FIXTURES / f"{name}.model").read_bytes())
        expected[name], count = expected_of(folder / f"{name}.model", texts)
        print(f"{name}: {len(texts)} texts, {count} tokens")
    (folder / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")


def more_texts(num_strings, num_tokens):
    chance = random.Random(5)
    texts = [fuzzed(chance) for _ in range(num_strings)] + ["", " ", MARK, "a", "é"]
    while sum(map(len, texts[num_strings:])) < num_tokens * 2:
        texts.append(mixed(chance, chance.randrange(2000)))
    return texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--strings", type=int, default=200_000)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    texts = json.loads((TEXTS / "texts.json").read_text())
    if arguments.make:
        write(FIXTURES, texts)
    elif arguments.check:
        expected = json.loads((FIXTURES / "expected.json").read_text())
        for name in MODELS:
            if expected_of(FIXTURES / f"{name}.model", texts)[0] != expected[name]:
                sys.exit(f"tests/data/sentencepiece/expected.json: {name} is not what the library gives")
    elif arguments.folder:
        folder, texts = arguments.folder.resolve(), more_texts(arguments.strings, arguments.tokens)
        write(folder, texts)
        (folder / "texts.json").write_text(json.dumps(texts) + "\n")
    else:
        parser.error("name a folder, --make or --check")


if __name__ == "__main__":
    main()
