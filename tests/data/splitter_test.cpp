#include "data/tokenizer/splitter.h"

#include "base/error.h"
#include "base/text/utf8.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/tokenizer_files.h"
#include "scratch.h"

#include <gmock/gmock.h>

#include <random>

namespace echelon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Collected : PieceSink {
  std::vector<std::string> pieces;
  void take(std::string_view piece) override { pieces.emplace_back(piece); }
};

std::vector<std::string> pieces_of(std::string_view text, const std::vector<SplitStep>& steps, bool as_regex = false) {
  Collected collected;
  Splitter(steps, as_regex).split(text, true, collected);
  return collected.pieces;
}
std::vector<std::string> pieces(std::string_view text,
                                const std::vector<std::string>& patterns = {std::string(gpt2_pattern)}) {
  return pieces_of(text, byte_level_splitter(patterns));
}

// Each expectation was derived by hand from the published pattern.
TEST(Splitter, Gpt2Pattern) {
  EXPECT_THAT(pieces("Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(pieces("I'm sure they'll've don't"),
              ElementsAre("I", "'m", " sure", " they", "'ll", "'ve", " don", "'t"));
  EXPECT_THAT(pieces("IT'S"), ElementsAre("IT", "'", "S"));  // the contractions are lower case
  EXPECT_THAT(pieces("x=12345;"), ElementsAre("x", "=", "12345", ";"));
  EXPECT_THAT(pieces(" 3.14"), ElementsAre(" 3", ".", "14"));
  EXPECT_THAT(pieces("größer 東京 한글"), ElementsAre("größer", " 東京", " 한글"));
  EXPECT_THAT(pieces("½ ²"), ElementsAre("½", " ²"));
  EXPECT_THAT(pieces("a   b"), ElementsAre("a", "  ", " b"));  // the last space goes with the word
  EXPECT_THAT(pieces("a\n\n  b"), ElementsAre("a", "\n\n ", " b"));
  EXPECT_THAT(pieces("a\n\tb"), ElementsAre("a", "\n", "\t", "b"));  // a tab does not
  EXPECT_THAT(pieces("end  \n"), ElementsAre("end", "  \n"));
  // no-break space, em space.
  EXPECT_THAT(pieces("a\xc2\xa0\xe2\x80\x83z"), ElementsAre("a", "\xc2\xa0", "\xe2\x80\x83", "z"));
  // U+180E is a mark like any other.
  EXPECT_THAT(pieces("a \xe1\xa0\x8e b"), ElementsAre("a", " \xe1\xa0\x8e", " b"));
  EXPECT_THAT(pieces(" ({}); 👍🏽"), ElementsAre(" ({});", " 👍🏽"));
  EXPECT_THAT(pieces(""), ElementsAre());
}

TEST(Splitter, BytesThatAreNoTextStandAlone) {
  EXPECT_THAT(pieces("ab\xff\xfe cd"), ElementsAre("ab", "\xff\xfe", " cd"));
  EXPECT_THAT(pieces("ab \xc3"), ElementsAre("ab", " ", "\xc3"));
}

TEST(Splitter, AppliesPatternsInTurnAndKeepsWhatTheyLeaveOut) {
  EXPECT_THAT(pieces("ab12345 c", {R"(\p{N}{1,3})", R"(\s+|\S)"}),
              ElementsAre("a", "b", "1", "2", "3", "4", "5", " ", "c"));
  EXPECT_THAT(pieces("a-b", {"b"}), ElementsAre("a-", "b"));
  EXPECT_THAT(pieces("äxä", {"x*"}), ElementsAre("ä", "x", "ä"));  // an empty match is not a piece
  EXPECT_THAT(pieces("\xe4\xb8\xad z", {R"([\u4e00-\u9fff])"}), ElementsAre("\xe4\xb8\xad", " z"));
  EXPECT_THAT(pieces_of("a b", {}), ElementsAre("a b"));
}

TEST(Splitter, RefusesABadPatternAndEndsAnEndlessOne) {
  EXPECT_THAT(sentence_of([] { pieces("", {"(a"}); }), HasSubstr("(a cannot be compiled: missing closing parenthesis"));
  EXPECT_THAT(sentence_of([] { pieces(std::string(60, 'a') + "!", {"^(a+)+$"}); }), HasSubstr("gives up on a text"));
}

// As Oniguruma, the library's regular expressions, reads them.
TEST(Splitter, ReadsPatternsAsOniguruma) {
  EXPECT_THAT(pieces("a\xc2\xb2-\xc2\xbd", {R"(\w+)"}), ElementsAre("a\xc2\xb2", "-", "\xc2\xbd"));  // a²-½
  EXPECT_THAT(pieces("a\xc2\xb2", {R"([\w]+)"}), ElementsAre("a", "\xc2\xb2"));
  for (const char* line : {"b+$", "(?<!x)b+$", "^b+", "(?<!x)^b+"})  // by a scanner, or a regular expression
    EXPECT_THAT(pieces("bb\nbb\nbbb", {line}), ElementsAre("bb", "\n", "bb", "\n", "bbb")) << line;
  EXPECT_THAT(pieces("aAb", {"(?i)(?<!x)[^a]"}), ElementsAre("aA", "b"));
  EXPECT_THAT(pieces("aAb", {R"((?i)(?<!x)\p{Lu})"}), ElementsAre("a", "A", "b"));
  for (const char* other : {R"(\h+)", R"(\X)", R"(\Qa\E)", "(?m).", "(?s:.)"})
    EXPECT_THAT(sentence_of([&] { pieces("a", {other}); }), HasSubstr("which is not supported")) << other;
}

TEST(Splitter, PiecesOfRandomBytesAreTheText) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 300; ++trial) {
    std::string text(random() % 200, ' ');
    for (char& c : text) c = static_cast<char>(trial % 2 == 0 ? random() : " \n'sa1\xc3\xa4\xe2\x80"[random() % 10]);
    std::string joined;
    for (const std::string& piece : pieces(text)) {
      EXPECT_FALSE(piece.empty());
      joined += piece;
    }
    EXPECT_EQ(joined, text);
  }
}

/// The published patterns, which a Scanner runs, and some more of its kind.
const std::vector<std::string> scanned_patterns = {
    std::string(gpt2_pattern),
    std::string(named_pattern("llama3")),
    std::string(named_pattern("qwen")),
    std::string(named_pattern("o200k")),
    R"(\p{N}{1,3})",
    "[一-龥぀-ゟ゠-ヿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"(\w{2,4}\s?|\W)",
    R"((?i:ks|ß?a)x*|\s++$)",
    R"(\w+$)"};

std::string fuzzed_text(std::mt19937& random) {
  const std::vector<std::string> parts = {" ", "  ", "\n", "\r\n",   "a",  "B",    "'s", "'RE",  "1", "2345", "!",
                                          "/", "'ſ", "ǅ",  "\u0301", "東", "かな", "²",  "𱍐", "<", "\t",   "\u3000"};
  std::string text;
  for (std::size_t i = random() % 20; i > 0; --i) {
    const std::uint32_t ends[] = {0x80, 0x250, 0x3100, 0x10000, 0x110000};
    const char32_t code = static_cast<char32_t>(random() % ends[random() % 5]);
    if (random() % 3 != 0 || (code >= 0xd800 && code < 0xe000))
      text += parts[random() % parts.size()];
    else
      append_utf8(code, text);
  }
  return text;
}

TEST(Splitter, AScannerGivesThePiecesOfARegex) {
  std::mt19937 random(3);
  for (const std::string& pattern : scanned_patterns) {
    const bool is_caseless_mark = pattern.find("ß") != std::string::npos;
    EXPECT_EQ(TextPattern::of_expression(pattern).scanner() != nullptr, !is_caseless_mark) << pattern;
    const Splitter scanner(byte_level_splitter({pattern})), regex(byte_level_splitter({pattern}), true);
    for (int trial = 0; trial < 400; ++trial) {
      const std::string text = fuzzed_text(random);
      Collected scanned, matched;
      scanner.split(text, true, scanned);
      regex.split(text, true, matched);
      EXPECT_EQ(scanned.pieces, matched.pieces) << pattern << " on " << text;
    }
  }
}

TEST(Utf8, AgreesWithTheTableOfWellFormedBytes) {
  for (const auto& [text, length] : std::vector<std::pair<std::string, std::size_t>>{{"a", 1},
                                                                                     {"\xc3\xa4", 2},
                                                                                     {"\xe2\x82\xac", 3},
                                                                                     {"\xf0\x9f\x91\x8d", 4},
                                                                                     // Up to U+10FFFF.
                                                                                     {"\xf4\x8f\xbf\xbf", 4},
                                                                                     {"\xc0\xaf", 0},
                                                                                     {"\xe0\x80\xaf", 0},
                                                                                     {"\xf0\x80\x80\xaf", 0},
                                                                                     {"\xed\xa0\x80", 0},
                                                                                     // overlong, surrogate, too large.
                                                                                     {"\xf4\x90\x80\x80", 0},
                                                                                     {"\x80", 0},
                                                                                     {"\xff", 0},
                                                                                     {"\xc3", 0},
                                                                                     {"\xe2\x82", 0},
                                                                                     {"", 0}}) {
    EXPECT_EQ(utf8_character_length(text), length) << testing::PrintToString(text);
  }
  EXPECT_EQ(valid_utf8_prefix("0123456789\xc3\xa4\xff"), 12u);
}

TEST(ByteAlphabet, GivesTheKnownStandIns) {
  EXPECT_EQ(to_byte_alphabet(" a\n\t"), "ĠaĊĉ");
  EXPECT_EQ(to_byte_alphabet("ä"), "Ã¤");
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(all)), all);
  EXPECT_EQ(from_byte_alphabet("<日>"), "<日>");  // represents no byte, so it is kept
  EXPECT_EQ(bytes_in_vocabulary_order()[0], '!');
  EXPECT_EQ(bytes_in_vocabulary_order()[188], 0);  // 94 + 12 + 82 bytes map to themselves
}

}  // namespace
}  // namespace echelon
