#include "data/tokenizer/tokenizer.h"

#include "base/error.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/encoder.h"
#include "scratch.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <thread>

namespace echelon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Word = std::vector<std::string>;

std::vector<std::string> words_of(std::string_view text) {
  struct Words : PieceSink {
    std::vector<std::string> words;
    void take(std::string_view word) override { words.emplace_back(word); }
  } collected;
  Splitter(byte_level_splitter({std::string(gpt2_pattern)})).split(text, true, collected);
  return collected.words;
}

Word bytes_of(const std::string& word) {
  Word bytes;
  for (const char c : word) bytes.emplace_back(1, c);
  return bytes;
}

using Pair = std::pair<std::string, std::string>;

/// Returns how many of the pairs overlapped with one that was merged, as in aaa.
int merge_everywhere(Word& word, const Pair& pair) {
  Word merged;
  int num_overlaps = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool occurs = i + 1 < word.size() && word[i] == pair.first && word[i + 1] == pair.second;
    merged.push_back(occurs ? word[i] + word[i + 1] : word[i]);
    i += occurs;
    num_overlaps += occurs && i + 1 < word.size() && word[i] == pair.first && word[i + 1] == pair.second;
  }
  word = merged;
  return num_overlaps;
}

// Recounts all pairs for each merge, on strings instead of ids. A pair that was merged before keeps its count.
std::vector<Pair> naive_merges(const std::string& text, std::size_t vocab_size, int min_frequency) {
  std::map<std::string, int> ids;  // only to break ties as documented
  for (const std::uint8_t byte : bytes_in_vocabulary_order())
    ids.emplace(std::string(1, static_cast<char>(byte)), static_cast<int>(ids.size()));
  std::vector<Word> words;
  for (const std::string& word : words_of(text)) words.push_back(bytes_of(word));
  std::vector<Pair> merges;
  std::map<Pair, int> kept;
  while (ids.size() < vocab_size - 1) {
    std::map<std::pair<int, int>, int> counts;
    std::map<std::pair<int, int>, Pair> names;
    for (const Word& word : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        const std::pair<int, int> pair(ids.at(word[i]), ids.at(word[i + 1]));
        names[pair] = {word[i], word[i + 1]};
        if (counts[pair]++ == 0) counts[pair] += kept[names[pair]];
      }
    }
    // The first of equals.
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end() || best->second < min_frequency) break;
    const Pair pair = names.at(best->first);
    std::erase(merges, pair);
    merges.push_back(pair);
    ids.emplace(pair.first + pair.second, static_cast<int>(ids.size()));
    kept[pair] = best->second;
    for (Word& word : words) kept[pair] -= merge_everywhere(word, pair);
  }
  return merges;
}

std::vector<Pair> merges_by_name(const TokenizerSpec& spec) {
  std::vector<Pair> names;
  for (const Merge& merge : spec.merges) {
    names.emplace_back(spec.tokens[static_cast<std::size_t>(merge.left)],
                       spec.tokens[static_cast<std::size_t>(merge.right)]);
  }
  return names;
}

std::string random_text(unsigned seed, std::size_t length, std::string_view letters) {
  std::mt19937 random(seed);
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += letters[random() % letters.size()];
  return text;
}

TokenizerSpec trained(const std::string& text, std::int64_t vocab_size, std::int64_t min_frequency = 2) {
  BpeTrainer trainer;
  trainer.add(text);
  return trainer.train(vocab_size, min_frequency);
}

TEST(BpeTrainer, LearnsWhatTheNaiveOneLearns) {
  const std::string prose = "the cat sat on the mat and the other cat sat on that hat; banana bandana aaaa aaaaa aa\n";
  for (const std::string& text :
       {prose, prose + prose, random_text(1, 600, "ab "), random_text(2, 250, "aab"), random_text(3, 2000, "abcd  \n"),
        random_text(4, 200, "a"), random_text(5, 3000, "etaoin shrdlu'.")}) {
    for (const int min_frequency : {1, 2, 9})
      EXPECT_EQ(merges_by_name(trained(text, 330, min_frequency)), naive_merges(text, 330, min_frequency))
          << text.substr(0, 40);
  }
}

TEST(BpeTrainer, GivesTheVocabularyThatWasAskedFor) {
  const TokenizerSpec spec = trained(random_text(5, 3000, "etaoin shrdlu'."), 300);
  EXPECT_EQ(spec.tokens.size(), 300u);
  EXPECT_EQ(spec.tokens.back(), "<|endoftext|>");
  EXPECT_EQ(spec.added, (std::vector<AddedToken>{{299, "<|endoftext|>", true}}));
  EXPECT_EQ(trained("ab", 300).tokens.size(), 257u);  // no pair occurs twice
  EXPECT_THAT(sentence_of([] { trained("ab", 256); }), HasSubstr("vocab_size = 256 is not in [257, "));
  EXPECT_THAT(sentence_of([] { trained("ab", 300, 0); }), HasSubstr("min_frequency = 0 is not at least 1"));
}

TEST(BpeTrainer, SeparatorsAreNoText) {
  EXPECT_TRUE(trained("a<|endoftext|>b<|endoftext|>a<|endoftext|>b<|endoftext|>", 300).merges.empty());
}

std::vector<std::string> naive_encode(const TokenizerSpec& spec, const std::string& text) {
  const auto merges = merges_by_name(spec);
  std::vector<std::string> tokens;
  for (const std::string& piece : words_of(text)) {
    Word word = bytes_of(piece);
    // GPT-2's rule in its simplest form: all merges in order.
    for (const auto& pair : merges) merge_everywhere(word, pair);
    tokens.insert(tokens.end(), word.begin(), word.end());
  }
  return tokens;
}

TEST(Tokenizer, EncodesAsTheNaiveLoop) {
  const std::string text = random_text(6, 6000, "aabcde  \n'.");
  const TokenizerSpec spec = trained(text, 400);
  const Tokenizer tokenizer(spec);
  for (const std::string& sample : {text, random_text(7, 3000, "aabcdefg  \n'."), random_text(8, 700, "ab")}) {
    std::vector<std::string> tokens;
    for (const std::int32_t id : tokenizer.encode(sample)) tokens.emplace_back(tokenizer.bytes(id));
    EXPECT_EQ(tokens, naive_encode(spec, sample));
  }
}

TEST(Tokenizer, RandomBytesSurviveTheRoundTrip) {
  const Tokenizer tokenizer(trained(random_text(6, 6000, "aabcde  \n'."), 400));
  std::mt19937 random(9);
  for (int trial = 0; trial < 200; ++trial) {
    std::string text(random() % 300, ' ');
    for (char& c : text) c = static_cast<char>(random());
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  const std::string long_piece = random_text(10, 300000, "ab");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(long_piece)), long_piece);
}

TEST(Tokenizer, AnEncoderRemembersNothingWrong) {
  const Tokenizer tokenizer(trained(random_text(6, 6000, "aabcde  \n'."), 400));
  Encoder encoder(tokenizer);
  for (unsigned trial = 0; trial < 20; ++trial) {
    const std::string text = random_text(trial, 500, "aabcde  \n'.");
    std::vector<std::int32_t> ids;
    encoder.append(text, ids);
    EXPECT_EQ(ids, tokenizer.encode(text));
  }
}

TEST(Tokenizer, FindsAddedTokensLongestFirst) {
  TokenizerSpec spec = trained("", 257);
  spec.added.push_back({300, "<|end", false});
  const Tokenizer tokenizer(spec);
  EXPECT_THAT(tokenizer.encode("!<|endoftext|><|end<"), ElementsAre(0, 256, 300, '<' - '!'));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{300, 256}), "<|end<|endoftext|>");
  EXPECT_EQ(tokenizer.vocab_size(), 301);
  EXPECT_EQ(tokenizer.end_of_document(), 256);
  EXPECT_EQ(tokenizer.added_token("<|pad|>"), std::nullopt);
  for (const std::int32_t id : {-1, 257, 301}) EXPECT_THROW((void)tokenizer.bytes(id), Error);
}

TEST(Tokenizer, WhatWentAlongWithAnAddedTokenIsNoOther) {
  BpeTrainer trainer;
  trainer.add("text");
  TokenizerSpec spec = trainer.train(257);
  spec.added.push_back({.id = 300, .content = "\n\n", .is_special = false, .strips_left = true, .strips_right = true});
  EXPECT_EQ(Tokenizer(spec).encode("\n\n\n\n"), std::vector<std::int32_t>{300});
  EXPECT_EQ(Tokenizer(spec).encode("\n\na\n\n"), (std::vector<std::int32_t>{300, 'a' - '!', 300}));
}

TEST(Tokenizer, SavedAndLoadedIsTheSame) {
  const Scratch scratch;
  TokenizerSpec spec = trained("hello \"hello\" \\hello\\ ümläut ümläut \n\n\n\n", 300);
  const Tokenizer tokenizer(spec);
  tokenizer.save(scratch.path("tokenizer.json"));
  EXPECT_EQ(parse_tokenizer_json(scratch.read("tokenizer.json"), "x"), spec);
  EXPECT_EQ(Tokenizer::load(scratch.path("tokenizer.json")).encode("hello ümläut"), tokenizer.encode("hello ümläut"));
  spec.splitter = byte_level_splitter({R"(\p{N}{1,3}|"a")", R"(\s+)"});
  spec.prefers_whole_pieces = true;
  EXPECT_EQ(parse_tokenizer_json(to_tokenizer_json(spec), "x"), spec);
}

// A file as Hugging Face writes it, built here: 256 bytes, "ab" and "abc".
std::string file_text(const std::string& merges, const std::string& pre_tokenizer, const std::string& model_extra = "",
                      const std::string& extra = "") {
  std::string vocab;
  for (int b = 0; b < 256; ++b) {
    const std::string name = to_byte_alphabet(std::string(1, static_cast<char>(b)));
    vocab += (name == "\"" || name == "\\" ? "\"\\" + name : "\"" + name) + "\":" + std::to_string(b) + ",";
  }
  return "{\"pre_tokenizer\":" + pre_tokenizer + ",\"model\":{\"type\":\"BPE\",\"vocab\":{" + vocab +
         "\"ab\":256,\"abc\":257},\"merges\":" + merges + model_extra + "}" + extra + "}";
}
const std::string byte_level = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";

TEST(TokenizerJson, ReadsBothFormsOfMerges) {
  for (const std::string merges : {R"(["a b","ab c"])", R"([["a","b"],["ab","c"]])"}) {
    const Tokenizer tokenizer(parse_tokenizer_json(file_text(merges, byte_level), "x"));
    EXPECT_THAT(tokenizer.encode("abcab"), ElementsAre(257, 256));
  }
}

TEST(TokenizerJson, TakesTheSplitFromTheFile) {
  const std::string split =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"b"},"behavior":"Isolated","invert":false},
      {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
  EXPECT_THAT(Tokenizer(parse_tokenizer_json(file_text(R"(["a b"])", split), "x")).encode("ab"), ElementsAre('a', 'b'));
}

TEST(TokenizerJson, IgnoreMergesTakesWholePieces) {
  const std::string merges = R"(["a b"])";  // no merge makes abc
  EXPECT_THAT(Tokenizer(parse_tokenizer_json(file_text(merges, byte_level), "x")).encode("abc"), ElementsAre(256, 'c'));
  EXPECT_THAT(
      Tokenizer(parse_tokenizer_json(file_text(merges, byte_level, ",\"ignore_merges\":true"), "x")).encode("abc"),
      ElementsAre(257));
}

TEST(TokenizerJson, NormalizesIfTheFileSaysSo) {
  const Tokenizer tokenizer(
      parse_tokenizer_json(file_text("[]", byte_level, "", R"(,"normalizer":{"type":"NFC"})"), "x"));
  const auto round_trip = [&](std::string_view text) { return tokenizer.decode(tokenizer.encode(text)); };
  EXPECT_EQ(round_trip("e\xcc\x81"), "\xc3\xa9");  // e and acute
  // Two jamo are one syllable; the Angstrom sign is a letter.
  EXPECT_EQ(round_trip("\xe1\x84\x80\xe1\x85\xa1\xff\xe2\x84\xab"), "\xea\xb0\x80\xff\xc3\x85");
  EXPECT_EQ(round_trip("\xc3\xa9 \xcc\x81"), "\xc3\xa9 \xcc\x81");
}

TEST(TokenizerJson, NamesWhatItCannotUse) {
  const auto complaint = [](const std::string& text) {
    return sentence_of([&] { Tokenizer(parse_tokenizer_json(text, "t.json"), "t.json"); });
  };
  const std::string merges = R"(["a b"])";
  EXPECT_THAT(complaint("{"), HasSubstr("t.json: not valid JSON at column 2, after '{': unexpected end of input"));
  EXPECT_THAT(complaint("[]"), HasSubstr("t.json is not a JSON object"));
  EXPECT_THAT(complaint("{}"), HasSubstr("has no model"));
  EXPECT_THAT(complaint(file_text(merges, R"({"type":"BertPreTokenizer"})")),
              HasSubstr("pre_tokenizer.type = \"BertPreTokenizer\" is not supported; ByteLevel, Split"));
  EXPECT_THAT(complaint(file_text(merges, R"({"type":"Metaspace","replacement":"ab"})")),
              HasSubstr("replacement = \"ab\" is not one character"));
  EXPECT_THAT(
      complaint(file_text(merges, R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})")),
      HasSubstr("pretokenizers[1].type = Digits comes after ByteLevel"));
  EXPECT_THAT(
      complaint(file_text(merges, R"({"type":"Split","pattern":{"Regex":"[[:graph:]]"},"behavior":"Isolated"})")),
      HasSubstr("has a class that is not supported"));
  EXPECT_THAT(complaint(file_text(merges, R"({"type":"Split","pattern":{"String":"a"},"behavior":"Kept"})")),
              HasSubstr("behavior = \"Kept\" is not supported; Removed, Isolated"));
  EXPECT_THAT(complaint(file_text(merges, byte_level, "", R"(,"normalizer":{"type":"BertNormalizer"})")),
              HasSubstr("normalizer.type = \"BertNormalizer\" is not supported; NFC"));
  EXPECT_THAT(complaint(file_text(merges, byte_level, "", R"(,"decoder":{"type":"WordPiece"})")),
              HasSubstr("decoder.type = \"WordPiece\" is not supported"));
  EXPECT_THAT(complaint(file_text(merges, byte_level, ",\"dropout\":0.1")), HasSubstr("model.dropout = 0.1"));
  EXPECT_THAT(complaint(file_text(R"(["a x y"])", byte_level)),
              HasSubstr("model.merges[0] = \"a x y\" is not two tokens"));
  EXPECT_THAT(complaint(file_text(R"(["a c"])", byte_level)),
              HasSubstr("model.merges[0]: \"ac\" is not in model.vocab"));
  EXPECT_THAT(complaint(file_text(R"([7])", byte_level)), HasSubstr("model.merges[0] is not a string"));
  EXPECT_THAT(complaint(R"({"model":{"type":"WordPiece"}})"),
              HasSubstr("model.type = WordPiece is not supported; BPE and Unigram are"));
  EXPECT_THAT(complaint(R"({"model":{"type":"Unigram","unk_id":1,"vocab":[["a",0]]}})"),
              HasSubstr("model.unk_id = 1 is not below 1"));
  EXPECT_THAT(complaint(R"({"pre_tokenizer":)" + byte_level + R"(,"model":{"vocab":{"a":-1},"merges":[]}})"),
              HasSubstr("model.vocab.a = -1"));
  EXPECT_THAT(complaint(R"({"pre_tokenizer":)" + byte_level + R"(,"model":{"vocab":{"a":1,"b":1},"merges":[]}})"),
              HasSubstr("id 1 is given"));
  EXPECT_THAT(complaint(R"({"pre_tokenizer":)" + byte_level + R"(,"model":{"vocab":{"a":9999999},"merges":[]}})"),
              HasSubstr("model.vocab.a = 9999999 is not a token id in [0, 65552)"));
  EXPECT_THAT(complaint(R"({"added_tokens":[{"id":9999999,"content":"<x>"}],"pre_tokenizer":)" + byte_level +
                        R"(,"model":{"vocab":{"a":0},"merges":[]}})"),
              HasSubstr("added_tokens[0].id = 9999999 is not a token id in [0, 65568)"));
  EXPECT_THAT(complaint(R"({"pre_tokenizer":)" + byte_level + R"(,"model":{"vocab":{"a":99999999999},"merges":[]}})"),
              HasSubstr("is not a token id"));
  EXPECT_THAT(complaint(R"({"pre_tokenizer":)" + byte_level + R"(,"model":{"vocab":{"a":1},"merges":[]}})"),
              HasSubstr("no token for byte 0x00"));
  EXPECT_THAT(sentence_of([] { (void)Tokenizer::load("/no/such/tokenizer.json"); }),
              HasSubstr("/no/such/tokenizer.json cannot be read"));
}

// The library gives them ids that follow the vocabulary, in the file's order.
TEST(TokenizerJson, AddedTokensFollowTheVocabulary) {
  TokenizerSpec spec = trained("ab ab", 300);
  const auto num_tokens = static_cast<std::int32_t>(spec.tokens.size());
  const AddedToken known = spec.added.at(0);
  spec.added = {
      {num_tokens + 7, "<b>", true}, {num_tokens + 2, "<a>", true}, {3, known.content, true}, {9, "<a>", true}};
  const TokenizerSpec read = parse_tokenizer_json(to_tokenizer_json(spec), "file");
  EXPECT_EQ(read.added, (std::vector<AddedToken>{{known.id, known.content, true},
                                                 {num_tokens, "<b>", true},
                                                 {num_tokens + 1, "<a>", true},
                                                 {num_tokens + 1, "<a>", true}}));
  // A vocabulary with a gap counts its tokens.
  spec.tokens.push_back("");
  spec.tokens.push_back("zz");
  spec.added = {{num_tokens + 2, "<a>", true}};
  EXPECT_EQ(parse_tokenizer_json(to_tokenizer_json(spec), "file").added.at(0).id, num_tokens + 1);
}

TEST(TokenizerJson, MutationsNeverCrash) {
  const std::string good = to_tokenizer_json(trained("hello hello world world", 270));
  std::mt19937 random(11);
  for (int trial = 0; trial < 1500; ++trial) {
    std::string bad = good;
    for (int edit = 0; edit < 1 + trial % 4; ++edit) {
      const std::size_t at = random() % bad.size();
      if (random() % 3 == 0)
        bad.erase(at, random() % 30);
      else if (random() % 2 == 0)
        bad.insert(at, bad.substr(random() % bad.size(), random() % 30));
      else
        bad[at] = static_cast<char>(random());
    }
    try {
      const Tokenizer tokenizer(parse_tokenizer_json(bad, "bad.json"));
      const auto ids = tokenizer.encode("hello <|endoftext|> world \xff 123");
      (void)tokenizer.decode(ids);
    } catch (const Error&) {
    }
  }
}

TEST(Tokenizer, ManyThreadsEncodeTheSame) {
  const Tokenizer tokenizer(trained(random_text(6, 6000, "aabcde  \n'."), 400));
  const std::string text = random_text(12, 20000, "aabcdef  \n'.");
  std::vector<std::vector<std::int32_t>> seen(4);
  std::vector<std::thread> threads;
  for (auto& mine : seen) threads.emplace_back([&] { mine = tokenizer.encode(text); });
  for (auto& thread : threads) thread.join();
  for (const auto& other : seen) EXPECT_EQ(other, seen[0]);
}

}  // namespace
}  // namespace echelon
