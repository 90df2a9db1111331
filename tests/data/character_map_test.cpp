// SentencePiece's rules of characters, in a trie that is built here by hand, and what damaged ones get.
#include "data/tokenizer/unicode/character_map.h"

#include "base/error.h"
#include "base/text/base64.h"
#include "data/tokenizer/tokenizer.h"
#include "scratch.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

#include <array>
#include <random>

namespace echelon {
namespace {

using ::testing::HasSubstr;

/// "a" becomes "1" and "ab" nothing. The offset of a node is to 256, 512 and 768; a value is at the offset itself.
std::string rules() {
  std::array<std::uint32_t, 1024> units = {};
  const auto node = [](std::uint32_t label, std::size_t from, std::size_t to, bool has_value) {
    return static_cast<std::uint32_t>(from ^ to) << 10U | (has_value ? 1U << 8U : 0U) | label;
  };
  units[0] = node(0, 0, 256, false);
  units[256 ^ 'a'] = node('a', 256 ^ 'a', 512, true);
  units[512] = 1U << 31U | 0U;
  units[512 ^ 'b'] = node('b', 512 ^ 'b', 768, true);
  units[768] = 1U << 31U | 2U;
  const std::uint32_t num_bytes = sizeof(units);
  return std::string(reinterpret_cast<const char*>(&num_bytes), sizeof(num_bytes)) +
         std::string(reinterpret_cast<const char*>(units.data()), num_bytes) + std::string("1\0\0", 3);
}

TEST(CharacterMap, ReplacesTheLongestSequences) {
  const CharacterMap map(rules(), "map");
  EXPECT_EQ(map.apply("xabaab"), "x1") << "x, ab, a, ab";
  EXPECT_EQ(map.apply("aé\xff\xc3"), "1é\xff\xc3");
  EXPECT_EQ(map.apply(""), "");
  EXPECT_EQ(map.longest_replacement(), 1U);
}

TEST(CharacterMap, RefusesWhatIsDamagedAndNeverCrashes) {
  const auto complaint = [](const std::string& bytes) {
    return sentence_of([&] { (void)CharacterMap(bytes, "map"); });
  };
  const std::string good = rules();
  for (std::size_t size = 0; size < 4; ++size)
    EXPECT_THAT(complaint(good.substr(0, size)), HasSubstr(fmt::format("map has {} bytes, less than", size)));
  EXPECT_THAT(complaint(good.substr(0, 4096)), HasSubstr("its trie has 4096 bytes, which are not whole units"));
  EXPECT_THAT(complaint(good + "2"), HasSubstr("map is cut off: its last replacement has no end"));
  EXPECT_THAT(complaint(good + std::string(300, 'x') + '\0'), HasSubstr("a replacement of 300 bytes (at most 256)"));
  EXPECT_THAT(complaint(good + std::string("\xff\0", 2)), HasSubstr("is not UTF-8"));
  std::mt19937 random(7);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string bad = good;
    for (int edit = 0; edit < 8; ++edit) bad[4 + random() % (bad.size() - 4)] = static_cast<char>(random());
    for (const std::size_t node : {0, 256 ^ 'a', 512 ^ 'b'})
      bad[4 + 4 * node + random() % 4] = static_cast<char>(random());
    try {
      (void)CharacterMap(bad, "bad").apply("abaab xab");
    } catch (const Error&) {
    }
  }
}

TEST(CharacterMap, IsAStepOfATokenizer) {
  const std::string base64 = to_base64(rules());
  const auto file = [&](const std::string& step) {
    return R"({"normalizer":{"type":"Precompiled",)" + step +
           R"(},"model":{"type":"BPE","vocab":{"1":0},"merges":[]}})";
  };
  const auto read = [&](const std::string& step) { return parse_tokenizer_json(file(step), "t.json"); };
  const std::string known = R"("precompiled_charsmap":")" + base64 + R"(","longest_match":true)";
  const TokenizerSpec spec = read(known);
  EXPECT_EQ(parse_tokenizer_json(to_tokenizer_json(spec), "again"), spec);
  EXPECT_EQ(Tokenizer(spec).encode("aab"), std::vector<std::int32_t>{0});
  EXPECT_THAT(sentence_of([&] { (void)read(R"("precompiled_charsmap":")" + base64 + "\""); }),
              HasSubstr("t.json: tokenizer.normalizer.type = \"Precompiled\" is not supported"));
  EXPECT_THAT(sentence_of([&] { (void)read(R"("precompiled_charsmap":"a","longest_match":true)"); }),
              HasSubstr("precompiled_charsmap is not base64"));
}

}  // namespace
}  // namespace echelon
