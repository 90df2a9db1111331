// The files of SentencePiece, tiktoken and GPT-2, built here by hand, and what bad ones get.
#include "data/tokenizer/tokenizer_files.h"

#include "data/tokenizer/encoder.h"
#include "scratch.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <random>

namespace echelon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}

std::string piece(const std::string& text, float score, int type = 1) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  const std::string number(reinterpret_cast<const char*>(&bits), sizeof(bits));
  return message(1,
                 message(1, text) + std::string(1, 2 << 3 | 5) + number + std::string{3 << 3, static_cast<char>(type)});
}

/// model_type 1 is Unigram, 2 BPE. The normalizer adds a prefix and keeps spaces.
std::string sentencepiece(int model_type) {
  const std::string mark = "\xe2\x96\x81";
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece(mark + "ab", -1) + piece("ab", -2) + piece(mark, -3) +
         piece("a", -4) + piece("b", -5) + message(2, std::string{3 << 3, static_cast<char>(model_type)}) +
         message(3, std::string{4 << 3, 0});
}

std::vector<std::int32_t> encoded(const TokenizerSpec& spec, std::string_view text, bool parses_control = true) {
  const Tokenizer tokenizer(spec);
  std::vector<std::int32_t> ids;
  Encoder(tokenizer, parses_control).append(text, ids);
  return ids;
}

TEST(SentencePiece, ReadsBothModels) {
  for (const int type : {1, 2}) {
    const TokenizerSpec spec = parse_sentencepiece(sentencepiece(type), "m.model");
    EXPECT_THAT(encoded(spec, "ab bab"), ElementsAre(2, 4, 6, 3)) << type;
    EXPECT_THAT(encoded(spec, "axxb"), ElementsAre(4, 5, 0, 6)) << type;  // unknown ones are one
    EXPECT_THAT(encoded(spec, "<s>"), ElementsAre(1)) << type;
    EXPECT_THAT(encoded(spec, "<s>", false), ElementsAre(4, 0)) << type;  // no text becomes a control token
    EXPECT_EQ(Tokenizer(spec).decode(encoded(spec, "ab  b")), "ab  b") << type;
    const TokenizerSpec tidy = parse_sentencepiece(sentencepiece(type) + message(3, {4 << 3, 1}), "m.model");
    EXPECT_THAT(encoded(tidy, " ab  \xe2\x96\x81"), ElementsAre(2)) << type;  // a mark at the end is a space
    EXPECT_EQ(parse_tokenizer_json(to_tokenizer_json(spec), "x"), spec) << type;
  }
}

TEST(SentencePiece, RefusesWhatIsNoModelAndNeverCrashes) {
  const auto complaint = [](const std::string& bytes) {
    return sentence_of([&] { (void)parse_sentencepiece(bytes, "m.model"); });
  };
  const std::string good = sentencepiece(2);
  EXPECT_THAT(complaint(good.substr(0, good.size() - 1)),
              HasSubstr("m.model is not a model of SentencePiece, or is cut off"));
  EXPECT_THAT(complaint(""), HasSubstr("it has no pieces"));
  EXPECT_THAT(complaint(sentencepiece(3)), HasSubstr("model type 3"));
  EXPECT_THAT(complaint(good + message(3, message(2, "map"))), HasSubstr("m.model: the character map has 3 bytes"));
  EXPECT_THAT(complaint(good + message(5, message(1, "own") + message(2, "map"))),
              HasSubstr("m.model has a character map for decoding (denormalizer_spec)"));
  EXPECT_NO_THROW((void)parse_sentencepiece(good + message(5, message(1, "") + message(2, "")), "m.model"));
  EXPECT_THAT(complaint(good + piece("own", 0, 4)), HasSubstr("user-defined pieces and adds a prefix"));
  EXPECT_THAT(complaint(sentencepiece(1) + message(2, std::string{'\x98', 2, 1})), HasSubstr("byte fallback"));
  EXPECT_THAT(complaint(good + piece("<s>", 0)), HasSubstr("m.model: piece 7 is piece 1 again"));
  EXPECT_THAT(complaint(good + piece("c", std::nanf(""))),
              HasSubstr("piece 7 is empty or not UTF-8, or its score nan"));
  std::mt19937 random(5);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bad = good;
    for (int edit = 0; edit < 1 + trial % 3; ++edit) bad[random() % bad.size()] = static_cast<char>(random());
    try {
      (void)encoded(parse_sentencepiece(bad, "bad"), "ab <s> \xff");
    } catch (const Error&) {
    }
  }
}

TEST(SentencePiece, RefusesEveryCut) {
  for (const int type : {1, 2}) {
    const std::string whole = sentencepiece(type);
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_THAT(sentence_of([&] { (void)parse_sentencepiece(whole.substr(0, size), "m.model"); }),
                  HasSubstr("m.model is not a model of SentencePiece"))
          << size;
    EXPECT_NO_THROW((void)parse_sentencepiece(whole, "m.model"));
  }
  EXPECT_THAT(sentence_of([] { (void)parse_sentencepiece(sentencepiece(2).substr(0, 73), "m.model"); }),
              HasSubstr("or is cut off: after 5 pieces it has no trainer_spec"));
  EXPECT_THAT(sentence_of([] { (void)parse_sentencepiece(sentencepiece(2).substr(0, 101), "m.model"); }),
              HasSubstr("or is cut off: after 7 pieces it has no normalizer_spec"));
}

/// "IQ== 0" and so on: the 256 bytes, then "ab" and "abb".
std::string ranks() {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int byte = 0; byte < 256; ++byte)
    text += fmt::format("{}{}== {}\n", digits[static_cast<std::size_t>(byte >> 2)],
                        digits[static_cast<std::size_t>((byte & 3) << 4)], byte);
  return text + "YWI= 256\nYWJi 257\n";
}

TEST(Ranks, MergeAsTiktokenDoes) {
  const std::string pattern(named_pattern("cl100k"));
  const TokenizerSpec spec = parse_ranks(ranks(), pattern, "x.tiktoken");
  EXPECT_THAT(encoded(spec, "aab abba"), ElementsAre('a', 256, ' ', 257, 'a'));
  EXPECT_EQ(parse_tokenizer_json(to_tokenizer_json(spec), "x"), spec);
  const auto complaint = [&](const std::string& text) {
    return sentence_of([&] { (void)parse_ranks(text, pattern, "x.tiktoken"); });
  };
  EXPECT_THAT(complaint(ranks() + "IQ 7\n"), HasSubstr("x.tiktoken:259 is not a token in base64 and its rank"));
  EXPECT_THAT(complaint(ranks() + "IQ== 7\n"), HasSubstr("x.tiktoken:259 gives rank 7 to a second token"));
  EXPECT_THAT(complaint("IQ== 99999999999\n"), HasSubstr("x.tiktoken:1 is not"));
  EXPECT_THAT(complaint(ranks() + "IQ== 2222225\n"),
              HasSubstr("x.tiktoken:259 gives rank 2222225, which leaves too many without a token (use less than 69"));
  EXPECT_THAT(sentence_of([] { (void)named_pattern("gpt4"); }), HasSubstr("the names are gpt2, r50k"));
}

TEST(TokenizerFiles, AreKnownByNameAndContent) {
  const Scratch scratch;
  scratch.write("cl100k_base.tiktoken", ranks());
  scratch.write("tokenizer.model", sentencepiece(2));
  EXPECT_THAT(Tokenizer::load(scratch.path("cl100k_base.tiktoken")).encode("ab"), ElementsAre(256));
  EXPECT_THAT(Tokenizer::load(scratch.path("tokenizer.model")).encode("ab"), ElementsAre(2));
  scratch.write("other/tokenizer.model", ranks());
  EXPECT_THAT(sentence_of([&] { (void)Tokenizer::load(scratch.path("other/tokenizer.model")); }),
              HasSubstr("--pattern llama3"));
  EXPECT_THAT(Tokenizer::load(scratch.path("other/tokenizer.model"), "llama3").encode("ab"), ElementsAre(256));
  EXPECT_THAT(sentence_of([&] { (void)Tokenizer::load(scratch.path("tokenizer.model"), "foo"); }),
              HasSubstr("--pattern=foo is for tiktoken's files, which " + scratch.path("tokenizer.model") + " is not"));
  EXPECT_THAT(sentence_of([&] { (void)Tokenizer::load(scratch.path("other")); }),
              HasSubstr("other' is a folder, not a tokenizer's file (use '" + scratch.path("other/tokenizer.model")));
}

TEST(TokenizerFiles, RefuseStepsThatMultiplyText) {
  const auto read = [](int count, int size) {
    TokenizerSpec spec = parse_ranks(ranks(), std::string(gpt2_pattern), "x");
    const std::string content(static_cast<std::size_t>(size), 'l');
    for (int i = 0; i < count; ++i)
      spec.normalizer.push_back({.kind = NormalizerStep::Kind::replace, .pattern = "l", .content = content});
    return parse_tokenizer_json(to_tokenizer_json(spec), "t.json");
  };
  EXPECT_EQ(read(8, 2).normalizer.size(), 8U);
  for (const auto& [count, size] : {std::pair{60, 2}, {1, 100'000}})
    EXPECT_THAT(sentence_of([&, count = count, size = size] { (void)read(count, size); }),
                HasSubstr("those before it make text"))
        << count;
}

TEST(TokenizerFiles, TheEndOfASequenceIsWhatTheFilesSay) {
  const Scratch scratch;
  TokenizerSpec spec = parse_ranks(ranks(), std::string(gpt2_pattern), "x");
  spec.added = {{258, "<|im_end|>", true}, {259, "<|pad|>", true}};
  scratch.write("tokenizer.json", to_tokenizer_json(spec));
  const auto load = [&] { return Tokenizer::load(scratch.path("tokenizer.json")); };
  EXPECT_EQ(load().end_of_document(), std::nullopt);  // two, and no file says which
  scratch.write("special_tokens_map.json", R"({"eos_token":{"content":"<|pad|>"}})");
  EXPECT_EQ(load().end_of_document(), 259);
  scratch.write("tokenizer_config.json", R"({"eos_token":"<|im_end|>"})");
  EXPECT_EQ(load().end_of_document(), 258);
}

TEST(AddedTokens, AreFoundInTwoPasses) {
  TokenizerSpec spec = parse_ranks(ranks(), std::string(gpt2_pattern), "x");
  spec.normalizer = {{.kind = NormalizerStep::Kind::form, .form = NormalForm::nfc}};
  spec.added = {{300, "AB", false}, {301, "ABC", false, true}, {302, "\xc3\xa9x", false, true}};
  EXPECT_THAT(encoded(spec, "ABC"), ElementsAre(300, 'C'));
  EXPECT_THAT(encoded(spec, "e\xcc\x81x"), ElementsAre(302));
}

TEST(AddedTokens, ControlTokensAreTextOnRequestAndCounted) {
  TokenizerSpec spec = parse_ranks(ranks(), std::string(gpt2_pattern), "x");
  spec.added = {{300, "<|im_end|>", true}, {301, "<t>", false}};
  const Tokenizer tokenizer(spec);
  Encoder encoder(tokenizer, false);
  std::vector<std::int32_t> ids;
  encoder.append("<|im_end|><t><|im_end|>", ids);
  EXPECT_EQ(encoder.num_control_as_text(), 2);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 300), 0);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 301), 1);
  EXPECT_EQ(tokenizer.decode(ids), "<|im_end|><t><|im_end|>");
}

}  // namespace
}  // namespace echelon
