// SentencePiece's kinds of BPE encode raw text word by word, and the ids must be those of the whole marked text.
#include "data/tokenizer/encoder.h"
#include "naive_bpe.h"

#include <gmock/gmock.h>

namespace echelon {
namespace {

const std::string mark = "\u2581";
const NormalizerStep prepend = {.kind = NormalizerStep::Kind::prepend, .content = mark};
const NormalizerStep replace = {.kind = NormalizerStep::Kind::replace, .pattern = " ", .content = mark};
const SplitStep metaspace = {.kind = SplitStep::Kind::metaspace, .pattern = mark, .splits = false};
const SplitStep at_spaces = {.pattern = " ", .is_regex = false, .behavior = SplitBehavior::merged_with_previous};

/// As Llama 2, Gemma and Mistral have it, and with an unusual order.
enum class Pipeline : std::uint8_t { prefix, no_prefix, metaspace, prefix_last };

void set_pipeline(TokenizerSpec& spec, Pipeline pipeline) {
  switch (pipeline) {
    case Pipeline::prefix: spec.normalizer = {prepend, replace}; return;
    case Pipeline::no_prefix:
      spec.normalizer = {replace};
      spec.splitter = {at_spaces};
      return;
    case Pipeline::metaspace: spec.splitter = {metaspace}; return;
    case Pipeline::prefix_last: spec.normalizer = {replace, prepend}; return;
  }
}

std::vector<std::string> marked(std::vector<std::string> characters, Pipeline pipeline) {
  for (std::string& character : characters) {
    if (character == " ") character = mark;
  }
  const bool is_prefixed = pipeline == Pipeline::prefix || pipeline == Pipeline::prefix_last ||
                           (pipeline == Pipeline::metaspace && !characters.empty() && characters[0] != mark);
  if (is_prefixed && !characters.empty()) characters.insert(characters.begin(), mark);
  return characters;
}

std::vector<std::string> random_characters(std::mt19937& random, bool has_bytes) {
  std::vector<std::string> known = alphabet;
  known.insert(known.end(), 4, " ");
  if (has_bytes) known.insert(known.end(), {"\xff", "\xe2\x96", "\xc3"});  // bytes that are no characters
  std::vector<std::string> characters(random() % 200);
  const std::size_t num_spaces = random() % 2 == 0 ? 12 : 1;  // words of many lengths
  for (std::string& character : characters)
    character = random() % 16 < num_spaces ? known[random() % known.size()] : alphabet[random() % alphabet.size()];
  return characters;
}

void expect_naive_ids(const TokenizerSpec& spec, Pipeline pipeline, std::mt19937& random) {
  const Tokenizer tokenizer(spec);
  Encoder encoder(tokenizer);
  const bool takes_any_bytes = spec.has_byte_fallback && pipeline != Pipeline::metaspace;
  for (int sample = 0; sample < 30; ++sample) {
    const std::vector<std::string> characters = random_characters(random, takes_any_bytes);
    std::string text;
    for (const std::string& character : characters) text += character;
    std::vector<std::int32_t> ids;
    encoder.append(text, ids);
    EXPECT_EQ(ids, naive_ids(spec, marked(characters, pipeline))) << text;
  }
}

class SpacedWordsIds : public ::testing::TestWithParam<std::tuple<Pipeline, bool>> {};

TEST_P(SpacedWordsIds, AreThoseOfTheWhole) {
  const auto [pipeline, has_bytes] = GetParam();
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    TokenizerSpec spec = random_spec(random, has_bytes, false);
    set_pipeline(spec, pipeline);
    EXPECT_TRUE(SpacedWords::of(spec));
    expect_naive_ids(spec, pipeline, random);
  }
}

TEST_P(SpacedWordsIds, AreThoseOfTheWholeWhereMergesJoinWords) {
  const auto [pipeline, has_bytes] = GetParam();
  std::mt19937 random(8);
  int num_joining = 0;
  for (int trial = 0; trial < 20; ++trial) {
    TokenizerSpec spec = random_spec(random, has_bytes);
    set_pipeline(spec, pipeline);
    num_joining += SpacedWords::of(spec) ? 0 : 1;
    expect_naive_ids(spec, pipeline, random);
  }
  EXPECT_GT(num_joining, 15);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, SpacedWordsIds,
                         ::testing::Combine(::testing::Values(Pipeline::prefix, Pipeline::no_prefix,
                                                              Pipeline::metaspace, Pipeline::prefix_last),
                                            ::testing::Bool()));

TEST(SpacedWords, AreNotForTokenizersThatDoMore) {
  std::mt19937 random(9);
  const auto allows = [&](const auto& change) {
    TokenizerSpec spec = random_spec(random, true, false);
    set_pipeline(spec, Pipeline::prefix);
    change(spec);
    return SpacedWords::of(spec).has_value();
  };
  EXPECT_TRUE(allows([](TokenizerSpec&) {}));
  EXPECT_TRUE(allows([](auto& spec) { spec.added = {{0, "<s>", true}}; }));
  EXPECT_FALSE(allows([](auto& spec) { spec.normalizer = {}; }));
  EXPECT_FALSE(allows([](auto& spec) { spec.normalizer.push_back({.kind = NormalizerStep::Kind::strip}); }));
  EXPECT_FALSE(allows([](auto& spec) { spec.normalizer.push_back({.kind = NormalizerStep::Kind::form}); }));
  EXPECT_FALSE(allows([](auto& spec) { spec.normalizer[1].content = "_"; }));
  EXPECT_FALSE(allows([](auto& spec) { spec.normalizer[1].pattern = "a"; }));
  EXPECT_FALSE(allows([](auto& spec) { spec.normalizer[1].is_regex = true; }));
  EXPECT_FALSE(allows([](auto& spec) { spec.splitter = {{.pattern = "a"}}; }));
  EXPECT_FALSE(allows([](auto& spec) {
    spec.splitter = {at_spaces};
    spec.splitter[0].is_inverted = true;
  }));
  EXPECT_FALSE(allows([](auto& spec) {
    spec.normalizer = {};
    spec.splitter = {at_spaces, metaspace};
  }));
  EXPECT_FALSE(allows([](auto& spec) {
    spec.splitter = {metaspace};
    spec.splitter[0].splits = true;
  }));
  EXPECT_FALSE(allows([](auto& spec) { spec.added = {{0, "a b", false, true}}; }));
}

std::vector<std::string> words_of(bool joins_marks, std::string_view text) {
  TokenizerSpec spec;
  spec.tokens = {"a", mark, mark + mark, mark + "a"};
  spec.merges = {{1, 0, 3}};
  if (joins_marks) spec.merges.push_back({1, 1, 2});
  set_pipeline(spec, Pipeline::prefix);
  std::vector<std::string> words;
  SpacedWords::of(spec).value().for_each(
      text, [&](std::size_t begin, std::size_t end) { words.emplace_back(text.substr(begin, end - begin)); });
  return words;
}

using testing::ElementsAre;

// A block of the search is 64 bytes.
TEST(SpacedWords, StartWithTheirSpacesWhereMergesJoinMarks) {
  EXPECT_THAT(words_of(true, ""), ElementsAre());
  EXPECT_THAT(words_of(true, "  ab   c d "), ElementsAre("  ab", "   c", " d", " "));
  const std::string marked_text = "a" + mark + " b" + mark + "c d";
  EXPECT_THAT(words_of(true, marked_text), ElementsAre("a" + mark + " b" + mark + "c", " d"));
  for (std::size_t length = 60; length < 70; ++length) {
    const std::string first(length, 'a'), spaces(length, ' ');
    EXPECT_THAT(words_of(true, first + " b"), ElementsAre(first, " b"));
    EXPECT_THAT(words_of(true, first + "  b c"), ElementsAre(first, "  b", " c"));
    EXPECT_THAT(words_of(true, spaces + "b"), ElementsAre(spaces + "b"));
  }
}

TEST(SpacedWords, StartWithOneSpaceWhereNoMergeJoinsMarks) {
  EXPECT_THAT(words_of(false, "  ab   c d "), ElementsAre(" ", " ab", " ", " ", " c", " d", " "));
  EXPECT_THAT(words_of(false, "a" + mark + " b"), ElementsAre("a" + mark, " b"));
  for (std::size_t length = 60; length < 70; ++length) {
    const std::string first(length, 'a');
    EXPECT_THAT(words_of(false, first + "  b"), ElementsAre(first, " ", " b"));
  }
}

}  // namespace
}  // namespace echelon
