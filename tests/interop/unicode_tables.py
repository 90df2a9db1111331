#!/usr/bin/env python3
"""Asks `tokenizers` and Python what they do to every code point: scripts/unicode_tables.

Tables: categories and scripts are those of its regular expressions (Oniguruma), `numeric`, `lower` and white space are
Rust's, `punctuation`, `word` and the normalization forms are those of the crates that it uses.
The case of letters and what the methods of strings say of them are Python's, whose Unicode is older: sections from
[upper] on. `title` and `str_lower` are only what differs from `upper` and `lower`. --check leaves these sections out
where Python has another version of Unicode than the file names.
Digests: FNV-1a of the answers, one for each property and plane, which a test computes from our tables.
"""

import sys
import unicodedata
from pathlib import Path

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = ROOT / "src/data/tokenizer/unicode/tables.txt"
DIGESTS = ROOT / "tests/data/unicode_digests.txt"
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, CODES))
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
SCRIPTS = "Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai Devanagari Bengali Tamil Armenian Georgian Common".split()
FORMS = {"NFD": normalizers.NFD(), "NFC": normalizers.NFC(), "NFKD": normalizers.NFKD(), "NFKC": normalizers.NFKC()}
LOWER = normalizers.Lowercase()
METHODS = ["isupper", "islower", "istitle", "isalpha", "isdigit", "isalnum"]
CASES = ["upper", "lower", "title", "capitalize", "swapcase"]
SOURCES = f"tokenizers {tokenizers.__version__} and the Unicode {unicodedata.unidata_version} of Python"


def removed(pre_tokenizer):
    """The code points that a pre-tokenizer takes out of the string of all."""
    left = set(CODES)
    for _, (first, end) in pre_tokenizer.pre_tokenize_str(ALL):
        left.difference_update(CODES[first:end])
    return left


def in_class(expression):
    return removed(pre_tokenizers.Split(Regex(f"[{expression}]"), "removed"))


def joined_to_a(pre_tokenizer):
    """The code points that stay in one piece with an "a" before them and a space after them."""
    text = "".join(f"a{chr(c)} " for c in CODES)
    return {CODES[first // 3] for _, (first, end) in pre_tokenizer.pre_tokenize_str(text) if first % 3 == 0 and end - first == 2}


def alone_after_a(pre_tokenizer):
    text = "".join(f"a{chr(c)}" for c in CODES)
    return {CODES[first // 2] for _, (first, end) in pre_tokenizer.pre_tokenize_str(text) if first % 2 == 1 and end - first == 1}


def combining_classes():
    """Code point -> rank of its canonical combining class, as reordering shows it: 0 never moves."""
    nfd = FORMS["NFD"]
    first = nfd.normalize_str
    low, high = "\u0334", "\u0345"  # the lowest class and the highest
    marks = [c for c in CODES if len(first(chr(c))) == 1 and (first(chr(c) + low)[0] == low or first(high + chr(c))[1] == high)]
    marks.append(ord(high))
    groups = []  # one mark of each class, in ascending order
    for mark in sorted(set(marks)):
        at = 0
        while at < len(groups) and first(chr(mark) + chr(groups[at][0]))[0] != chr(mark):
            at += 1
        is_same = at < len(groups) and first(chr(groups[at][0]) + chr(mark))[0] == chr(groups[at][0])
        if is_same:
            groups[at].append(mark)
        else:
            groups.insert(at, [mark])
    return {mark: rank + 1 for rank, group in enumerate(groups) for mark in group}


def runs(values):
    """(first, length, value) of the runs of equal values that are not None."""
    result = []
    for code in range(0x110000):
        value = values.get(code)
        if value is None:
            continue
        if result and result[-1][0] + result[-1][1] == code and result[-1][2] == value:
            result[-1][1] += 1
        else:
            result.append([code, 1, value])
    return result


def run_words(values):
    """Hexadecimal: gap to the run before, its length if it is not 1, its value if it is not 1."""
    at = 0
    for first, length, value in runs(values):
        yield f"{first - at:x}" + (f"+{length:x}" if length > 1 else "") + (f"={value}" if value != 1 else "")
        at = first + length


def mapped_words(mapping):
    """Gap:code.code.code; the codes are hexadecimal."""
    at = 0
    for code, text in sorted(mapping.items()):
        yield f"{code - at:x}:" + ".".join(f"{ord(c):x}" for c in text)
        at = code


def wrapped(name, words):
    lines, line = [f"[{name}]"], ""
    for word in words:
        if len(line) + len(word) > 118:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    return lines + ([line] if line else [])


def sets():
    return {
        "word": joined_to_a(pre_tokenizers.Whitespace()),
        "regex_word": in_class(r"\w"),
        "space": in_class(r"\s"),
        "numeric": alone_after_a(pre_tokenizers.Digits(individual_digits=True)),
        "punctuation": removed(pre_tokenizers.Punctuation("removed")),
    }


def changed(normalizer, leave_hangul):
    result = {}
    for code in CODES:
        text = normalizer.normalize_str(chr(code))
        if text != chr(code) and not (leave_hangul and 0xAC00 <= code < 0xD7A4):
            result[code] = text
    return result


def compose_only(nfd):
    """Decompositions that composition takes back: NFC leaves the character as it is."""
    return {code for code in nfd if FORMS["NFC"].normalize_str(chr(code)) == chr(code)}


def fnv(parts):
    value = 0xCBF29CE484222325
    for part in parts:
        for byte in part:
            value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def digest_lines(name, answer):
    planes = [[c for c in CODES if c >> 16 == plane] for plane in range(17)]
    return f"{name} " + " ".join(fnv(answer(c) for c in plane) for plane in planes)


def ends_in_final_sigma(text):
    return text.lower().endswith("\u03c2")


def case_lines():
    """Python's str. A final sigma shows which characters it does not see: those before it that ignore case."""
    def ignores_case(char):
        return ends_in_final_sigma(f"A{char}\u03a3") and not ends_in_final_sigma(f"1{char}\u03a3")

    chars = {c: chr(c) for c in CODES}
    upper = {c: char.upper() for c, char in chars.items() if char.upper() != char}
    title = {c: char.title() for c, char in chars.items() if char.title() != char.upper()}
    lower = {c: char.lower() for c, char in chars.items() if char.lower() != LOWER.normalize_str(char)}
    lines = []
    for name, mapping in {"upper": upper, "title": title, "str_lower": lower}.items():
        lines += wrapped(name, mapped_words(mapping))
    sets = {name: {c for c, char in chars.items() if getattr(char, name)()} for name in METHODS}
    sets["ignores_case"] = {c for c, char in chars.items() if ignores_case(char)}
    for name, members in sets.items():
        lines += wrapped(name, run_words(dict.fromkeys(members, 1)))
    return lines


def case_digests():
    for name in CASES:
        yield digest_lines(f"str.{name}", lambda c: getattr(chr(c), name)().encode())
    for name in METHODS:
        if name != "istitle":
            yield digest_lines(f"str.{name}", lambda c: bytes([getattr(chr(c), name)()]))
    # What a character makes of those around it.
    for name in CASES:
        yield digest_lines(f"around.{name}", lambda c: getattr(f"a{chr(c)}\u03a3{chr(c)}A 1{chr(c)}\u03a3", name)().encode())


def without_case(text):
    """Without what Python's Unicode decides."""
    lines = [line for line in text.split("\n") if not line.startswith(("#", "str.", "around."))]
    return lines[:lines.index("[upper]")] if "[upper]" in lines else lines


def is_current(text, made):
    same_unicode = f"the Unicode {unicodedata.unidata_version} of" in text
    return text == made if same_unicode else without_case(text) == without_case(made)


def main():
    category = {}
    for index, name in enumerate(CATEGORIES):
        category.update(dict.fromkeys(in_class(rf"\p{{{name}}}"), index))
    assert len(category) == len(CODES), "every code point has one category"
    script = {name: in_class(rf"\p{{{name}}}") for name in SCRIPTS}
    flags = sets()
    assert flags["space"] == removed(pre_tokenizers.WhitespaceSplit()), "Rust's white space is Oniguruma's"
    nfd = changed(FORMS["NFD"], True)
    nfkd = {code: text for code, text in changed(FORMS["NFKD"], True).items() if nfd.get(code) != text}
    lines = [f"# Made by scripts/unicode_tables from {SOURCES},", "# which it asked about each code point; the script explains the notation."]
    lines += wrapped("category " + " ".join(CATEGORIES), run_words({c: f"{i:x}" for c, i in category.items() if CATEGORIES[i] != "Cn"}))
    for name, members in (flags | {f"script {s}": m for s, m in script.items()}).items():
        lines += wrapped(name, run_words(dict.fromkeys(members, 1)))
    lines += wrapped("combining", run_words({c: f"{rank:x}" for c, rank in combining_classes().items()}))
    lines += wrapped("composes", run_words(dict.fromkeys(compose_only(nfd), 1)))
    lines += wrapped("canonical", mapped_words(nfd))
    lines += wrapped("compatibility", mapped_words(nfkd))
    lines += wrapped("lower", mapped_words(changed(LOWER, False))) + case_lines()
    digests = [f"# Made by scripts/unicode_tables from {SOURCES}: FNV-1a of their answers, for each plane."]
    digests.append(digest_lines("category", lambda c: bytes([category[c]])))
    for name, members in (flags | script).items():
        digests.append(digest_lines(name, lambda c: bytes([c in members])))
    for name, form in (FORMS | {"lower": LOWER}).items():
        digests.append(digest_lines(name, lambda c: form.normalize_str(chr(c)).encode()))
    around = lambda c: FORMS["NFC"].normalize_str(f"e\u0345{chr(c)}\u0302\u0323\u0334").encode()
    digests.append(digest_lines("around", around))
    digests += case_digests()
    written = {TABLES: "\n".join(lines) + "\n", DIGESTS: "\n".join(digests) + "\n"}
    for path, text in written.items():
        if sys.argv[1:] != ["--check"]:
            path.write_text(text)
        elif not is_current(path.read_text(), text):
            sys.exit(f"{path.relative_to(ROOT)} is not what {SOURCES} give; run scripts/unicode_tables")


if __name__ == "__main__":
    main()
