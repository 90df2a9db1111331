#!/usr/bin/env python3
"""Tokenizers as the families publish them, made by Hugging Face's library, and what it makes of texts with them.

usage: tokenizer_pipelines.py FOLDER [--strings N] [--tokens N]    writes FOLDER/NAME.json, texts.json and expected.json
       tokenizer_pipelines.py --make      makes tests/data/pipelines anew, with few texts
       tokenizer_pipelines.py --check     fails if tests/data/pipelines is not what the library gives
The test PipelineInterop compares with a folder: for each text the CRC of the ids, of the decoded text, and of the ids
with control tokens as text.
"""

import argparse
import array
import json
import random
import sys
import zlib
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FIXTURES = Path(__file__).resolve().parent.parent / "data" / "pipelines"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
MARK = "▁"

POOLS = [
    ["the ", "then ", "there ", "hen", " tokenizer", "tokens ", "int ", "main(", ") {\n", "    return 0;\n", "}\n\n", "#include <", ">\n", "HTTPServer", "camelCase"],
    ["'s", "'t", "'re", "'VE", "'m", "'ll", "'D", "’s", " it's", "don't", "'", "'ſ", "'S"],
    ["0", "17", "1234567", " 2026", "½", "²", "٣", "3.14", "0x1f", "𞥐", "𐴰", "㆔", "〇"],
    [" ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u2003", "\u3000", "\u180e", "\u0085", "\u200b", "\x0b", "\x1c", "\x00", "\x7f"],
    ["größer", "Ärger ", "naïve", "e\u0301", "é", "a\u0323\u0302", "\u1100\u1161\u11a8", "\u212b", "ﬁ", "ǅ", "İ", "Москва", "ΣΑΣ", "東京", "かな", "カナ", "한글", "नमस्ते",
     "عربي", "ſ", "עברית", "ไทย", "தமிழ்", "বাংলা", "ქართული", "հայերեն", "አማርኛ", "ខ្មែរ", "မြန်မာ", "𱍐", "𲎰", "𖹀", "ꟊ", "①", "㌀", "ｱ"],
    ["😀", "👍🏽", "👨‍👩‍👧", "🏳️‍🌈", "!?", "...", "<|", "|>", "<", "==", "->", "€", "\\\"", "«", "—", "_", "▁", "▁▁", "‿"],
    ["<|endoftext|>", "<s>", "</s>", "<|im_end|>", "<tool>", "  <mask> ", "word", "ABC", "AB", "éx", "e\u0301x", "<0x41>", "<unk>"],
]


def mixed(chance, num_parts):
    return "".join(chance.choice(chance.choices(POOLS, [8, 2, 3, 4, 5, 2, 1])[0]) for _ in range(num_parts))


def fuzzed(chance):
    """A short string over all code points, near ones more often."""
    ends = [0x80, 0x250, 0x3100, 0x10000, 0x32000, 0x110000]
    parts = []
    for _ in range(chance.randrange(1, 24)):
        if chance.random() < 0.4:
            parts.append(chance.choice(chance.choice(POOLS)))
            continue
        code = chance.randrange(chance.choice(ends))
        parts.append(chr(code) if not 0xD800 <= code < 0xE000 else "?")
    return "".join(parts)


def special(content, **flags):
    return AddedToken(content, special=True, normalized=flags.pop("normalized", False), **flags)


def byte_level(*patterns, normalizer=None, added=(), prefix_space=False, use_regex=False, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    steps = [pre_tokenizers.Split(Regex(p), "isolated") if isinstance(p, str) else p for p in patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=use_regex))
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return trained_bpe(tokenizer, added or [special("<|endoftext|>"), special("<|im_end|>")], pre_tokenizers.ByteLevel.alphabet())


def texts_to_learn():
    chance = random.Random(2)
    return ["".join(chance.choice(chance.choice(POOLS[:-1])) for _ in range(60)) for _ in range(150)]


def trained_bpe(tokenizer, added, alphabet, size=440, first=()):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(first), initial_alphabet=list(alphabet), show_progress=False)
    tokenizer.train_from_iterator(texts_to_learn(), trainer)
    tokenizer.add_tokens(list(added))
    return tokenizer


BYTES = [f"<0x{b:02X}>" for b in range(256)]
LLAMA2_DECODER = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]


def sentencepiece_bpe(normalizer, pre_tokenizer=None, strip=True, bytes_fall_back=True, added=None):
    """Learned with Metaspace, as SentencePiece cuts words; the published pipeline is put in its place."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=bytes_fall_back))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    first = ["<unk>", "<s>", "</s>"] + (BYTES if bytes_fall_back else [])
    tokenizer = trained_bpe(tokenizer, [], [MARK], 400 + len(first), first)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(state))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Sequence(LLAMA2_DECODER + ([decoders.Strip(" ", 1, 0)] if strip else []))
    tokenizer.add_special_tokens([special(t) for t in ["<unk>", "<s>", "</s>"]])
    if added:
        tokenizer.add_tokens(added)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram(normalizer, pre_tokenizer, decoder, bytes_fall_back=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    first = ["<unk>", "</s>"] + (BYTES if bytes_fall_back else [])
    trainer = trainers.UnigramTrainer(vocab_size=300 + len(first), special_tokens=first, unk_token="<unk>", show_progress=False, n_sub_iterations=1)
    tokenizer.train_from_iterator(texts_to_learn(), trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = []
    state["model"]["byte_fallback"] = bytes_fall_back
    tokenizer = Tokenizer.from_str(json.dumps(state))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([special("</s>"), special("<unk>")])
    return tokenizer


def with_whole_scores(tokenizer):
    """Of which many segmentations have the same sum."""
    state = json.loads(tokenizer.to_str())
    state["model"]["vocab"] = [[token, float(round(score))] for token, score in state["model"]["vocab"]]
    return Tokenizer.from_str(json.dumps(state))


def llama2_normalizer():
    return normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])


def split(pattern, behavior, invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def bpe_on_characters(pre_tokenizer, **model):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **model))
    tokenizer.pre_tokenizer = pre_tokenizer
    return trained_bpe(tokenizer, [special("<|im_end|>")], [], 900, ["<unk>"])


FLAGS = [special("<s>", lstrip=True), special("</s>", rstrip=True), special("<mask>", lstrip=True, rstrip=True), AddedToken("word", single_word=True, normalized=True),
         AddedToken("AB", normalized=False), AddedToken("ABC", normalized=True), AddedToken("éx", normalized=True), AddedToken("<tool>", normalized=False)]


def pipelines():
    meta = pre_tokenizers.Metaspace
    return {
        "gpt2": lambda: byte_level(use_regex=True),
        "gpt2_prefix_space": lambda: byte_level(use_regex=True, prefix_space=True),
        "llama3": lambda: byte_level(LLAMA3, ignore_merges=True),
        "qwen2": lambda: byte_level(QWEN2, normalizer=normalizers.NFC()),
        "o200k": lambda: byte_level(O200K),
        "deepseek3": lambda: byte_level(*DEEPSEEK),
        "starcoder2": lambda: byte_level(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
        "smollm_digits": lambda: byte_level(pre_tokenizers.Digits(individual_digits=False), use_regex=True),
        "olmo2": lambda: byte_level(LLAMA3, added=[special("<|endoftext|>"), AddedToken("  ", normalized=False), AddedToken("    ", normalized=True)]),
        "pythia_spaces": lambda: byte_level(use_regex=True, normalizer=normalizers.NFC(), added=[special("<|endoftext|>"), AddedToken("  "), AddedToken("    ")]),
        "added_flags": lambda: byte_level(use_regex=True, normalizer=normalizers.NFC(), added=FLAGS),
        "added_lowercase": lambda: byte_level(LLAMA3, normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), added=FLAGS),
        "nfd": lambda: byte_level(QWEN2, normalizer=normalizers.NFD()),
        "nfkd_strip": lambda: byte_level(use_regex=True, normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.Strip(), normalizers.Replace(Regex(r"\s{2,}"), " ")])),
        "llama2": lambda: sentencepiece_bpe(llama2_normalizer()),
        "phi3": lambda: sentencepiece_bpe(llama2_normalizer(), added=[special("<|im_end|>", rstrip=True), AddedToken("<tool>", rstrip=True, normalized=False), AddedToken("word", single_word=True)]),
        "mistral_metaspace": lambda: sentencepiece_bpe(None, meta(prepend_scheme="first", split=False)),
        "metaspace_always": lambda: sentencepiece_bpe(None, meta(prepend_scheme="always", split=True)),
        "gemma": lambda: sentencepiece_bpe(normalizers.Replace(" ", MARK), split(" ", "merged_with_previous"), strip=False),
        "bpe_no_bytes": lambda: sentencepiece_bpe(llama2_normalizer(), bytes_fall_back=False),
        "t5_unigram": lambda: unigram(normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]), meta(), decoders.Metaspace()),
        "unigram_bytes": lambda: unigram(None, meta(prepend_scheme="never"), decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]), True),
        "unigram_whole": lambda: unigram(normalizers.Replace(" ", MARK), None, decoders.Metaspace(prepend_scheme="never")),
        "unigram_ties": lambda: with_whole_scores(unigram(None, meta(), decoders.Metaspace())),
        "whitespace": lambda: bpe_on_characters(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])),
        "punctuation": lambda: bpe_on_characters(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous")]), fuse_unk=True),
        "behaviors": lambda: bpe_on_characters(pre_tokenizers.Sequence([
            split(Regex(r"[A-Z]"), "merged_with_next"), split(Regex(r"\p{P}"), "merged_with_previous"), split(Regex(r"[aeiou]+"), "removed", True),
            split("e", "contiguous"), pre_tokenizers.Punctuation("merged_with_next")])),
        "lookbehind": lambda: byte_level(split(Regex(r"(?<=\p{Lu})\p{Ll}+|\b\w+?\b"), "isolated"), split(Regex(r"\s+"), "removed")),
    }


def crc(ids, text):
    return zlib.crc32(text.encode(), zlib.crc32(array.array("I", ids).tobytes()))


def without_control(tokenizer):
    """Control tokens are text. Unigram has them in its vocabulary, too, where the library would find them."""
    absent = "\uffff" * 8  # fuzzed strings have single ones
    state = json.loads(tokenizer.to_str())
    control = {t["content"] for t in state["added_tokens"] if t["special"]}
    if state["model"]["type"] == "Unigram":
        state["added_tokens"] = [t for t in state["added_tokens"] if not t["special"]]
        for entry in state["model"]["vocab"]:
            if entry[0] in control:
                entry[0] = absent + entry[0]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.encode_special_tokens = True
    return tokenizer


def expected_of(tokenizer, texts):
    """Per text eight hexadecimal digits for ids and text, and eight for the ids with control tokens as text."""
    parsed = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    decoded = tokenizer.decode_batch(parsed, skip_special_tokens=False)
    plain = [e.ids for e in without_control(tokenizer).encode_batch(texts, add_special_tokens=False)]
    return "".join(f"{crc(a, text):08x}{crc(b, ''):08x}" for a, text, b in zip(parsed, decoded, plain)), sum(map(len, parsed))


def write(folder, num_strings, num_tokens, seed):
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    texts = [fuzzed(chance) for _ in range(num_strings)] + ["", " ", MARK, "a", "é"]
    while sum(map(len, texts[num_strings:])) < num_tokens * 2:  # of small vocabularies a token is two characters
        texts.append(mixed(chance, chance.randrange(2000)))
    expected = {}
    for name, make in pipelines().items():
        path = FIXTURES / f"{name}.json"
        if folder == FIXTURES or not path.exists():
            make().save(str(folder / f"{name}.json"), pretty=False)
            path = folder / f"{name}.json"
        elif folder != FIXTURES:
            (folder / f"{name}.json").write_bytes(path.read_bytes())
        expected[name], count = expected_of(Tokenizer.from_file(str(path)), texts)
        print(f"{name}: {len(texts)} texts, {count} tokens")
    (folder / "texts.json").write_text(json.dumps(texts) + "\n")
    (folder / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")


def check():
    texts = json.loads((FIXTURES / "texts.json").read_text())
    expected = json.loads((FIXTURES / "expected.json").read_text())
    for name in pipelines():
        if expected_of(Tokenizer.from_file(str(FIXTURES / f"{name}.json")), texts)[0] != expected[name]:
            sys.exit(f"tests/data/pipelines/expected.json: {name} is not what the library gives")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--strings", type=int, default=200_000)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.make:
        write(FIXTURES, 160, 4000, 3)
    elif arguments.check:
        check()
    elif arguments.folder:
        write(arguments.folder.resolve(), arguments.strings, arguments.tokens, 4)
    else:
        parser.error("a folder, --make or --check")


if __name__ == "__main__":
    main()
