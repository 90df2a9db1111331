// Compares with Hugging Face's library on the pipelines of the published families: tests/data/pipelines, made by
// tests/interop/tokenizer_pipelines.py. ECHELON_PIPELINES names another folder of that script, with more texts.
#include "base/text/utf8.h"
#include "crc.h"
#include "data/tokenizer/encoder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

std::string pipelines_folder() {
  const char* given = std::getenv("ECHELON_PIPELINES");
  return given != nullptr ? given : std::string(ECHELON_SOURCE_DIR) + "/tests/data/pipelines";
}

std::uint32_t crc32_of_ids(const std::vector<std::int32_t>& ids, std::string_view text) {
  return crc32_of(text,
                  crc32_of(std::string_view{reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0])}));
}

/// Bytes of the longest start of a character, at most `text`: what one U+FFFD stands for (Unicode 15, section 3.9).
std::size_t start_of_character(std::string_view text) {
  static const std::string_view endings[] = {"\x80", "\xbf", "\x80\x80", "\xbf\xbf", "\x80\x80\x80"};
  std::size_t longest = 1;
  for (std::size_t length = 2; length <= std::min<std::size_t>(text.size(), 3); ++length) {
    for (const std::string_view ending : endings) {
      if (utf8_character_length(std::string(text.substr(0, length)) + std::string(ending)) > length) longest = length;
    }
  }
  return longest;
}

/// The library puts U+FFFD for bytes that are not UTF-8: an added token may be of ByteLevel's alphabet, such as é.
std::string with_replacement(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t valid = valid_utf8_prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text += "\xef\xbf\xbd";
    bytes.remove_prefix(start_of_character(bytes));
  }
  return text;
}

std::string digits_of(const Tokenizer& tokenizer, Encoder& parsing, Encoder& plain, const std::string& text) {
  std::vector<std::int32_t> ids, plain_ids;
  parsing.append(text, ids);
  plain.append(text, plain_ids);
  return fmt::format("{:08x}{:08x}", crc32_of_ids(ids, with_replacement(tokenizer.decode(ids))),
                     crc32_of_ids(plain_ids, ""));
}

// Claim: Token ids and decoded text equal those of Hugging Face's library on 27 pipelines of published families.
TEST(PipelineInterop, GivesTheLibrarysIdsAndText) {
  const auto texts =
      nlohmann::json::parse(std::ifstream(pipelines_folder() + "/texts.json")).get<std::vector<std::string>>();
  const auto expected = nlohmann::json::parse(std::ifstream(pipelines_folder() + "/expected.json"));
  ASSERT_GE(expected.size(), 18u);
  for (const auto& [name, digits] : expected.items()) {
    const Tokenizer tokenizer = Tokenizer::load(pipelines_folder() + "/" + name + ".json");
    Encoder parsing(tokenizer), plain(tokenizer, false);
    const auto all = digits.get<std::string>();
    ASSERT_EQ(all.size(), 16 * texts.size());
    std::size_t num_wrong = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string ours = digits_of(tokenizer, parsing, plain, texts[i]);
      const std::string theirs = all.substr(16 * i, 16);
      if (ours != theirs && ++num_wrong <= 3)
        ADD_FAILURE()
            << name << ", text " << i << ": " << ours << " instead of " << theirs << ": "
            << nlohmann::json(texts[i].substr(0, 200)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    }
    EXPECT_EQ(num_wrong, 0u) << name << ", of " << texts.size() << " texts";
  }
}

// Claim: Token ids and decoded text equal those of SentencePiece's library for models of its trainer, BPE and
// unigram, with and without rules for characters.
TEST(SentencePieceInterop, GivesTheLibrarysIdsAndText) {
  const char* given = std::getenv("ECHELON_SENTENCEPIECE");  // a folder of sentencepiece_models.py, with more texts
  const std::string committed = std::string(ECHELON_SOURCE_DIR) + "/tests/data/";
  const std::string folder = given != nullptr ? given : committed + "sentencepiece";
  const std::string of_texts = (given != nullptr ? folder : committed + "pipelines") + "/texts.json";
  const auto texts = nlohmann::json::parse(std::ifstream(of_texts)).get<std::vector<std::string>>();
  const auto expected = nlohmann::json::parse(std::ifstream(folder + "/expected.json"));
  ASSERT_GE(expected.size(), 6U);
  for (const auto& [name, digits] : expected.items()) {
    const Tokenizer tokenizer = Tokenizer::load(folder + "/" + name + ".model");
    Encoder encoder(tokenizer, false);
    std::vector<NormalizerStep> steps = tokenizer.spec().normalizer;
    std::erase_if(steps, [](const NormalizerStep& step) { return step.kind != NormalizerStep::Kind::character_map; });
    const Normalizer rules(steps);
    const auto all = digits.get<std::string>();
    ASSERT_EQ(all.size(), 16 * texts.size());
    std::size_t num_wrong = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::vector<std::int32_t> ids;
      encoder.append(texts[i], ids);
      const std::string theirs = all.substr(16 * i, 16), decoded = with_replacement(tokenizer.decode(ids));
      // The library removes the marks of spaces from all pieces at the start, not from the text.
      std::string storage;
      std::string_view mapped = rules.apply(texts[i], storage);
      mapped.remove_prefix(std::min(mapped.find_first_not_of(' '), mapped.size()));
      const bool starts_with_mark = mapped.starts_with(space_mark);
      const std::string ours = fmt::format("{:08x}{:08x}", crc32_of_ids(ids, ""), crc32_of(decoded));
      if (ours == theirs || (starts_with_mark && ours.substr(0, 8) == theirs.substr(0, 8))) continue;
      if (++num_wrong <= 3)
        std::printf("%s, text %zu: %s\n", name.c_str(), i,
                    nlohmann::json(texts[i].substr(0, 200))
                        .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)
                        .c_str());
    }
    EXPECT_EQ(num_wrong, 0U) << name << ", of " << texts.size() << " texts";
    std::printf("%s: %zu of %zu texts differ\n", name.c_str(), num_wrong, texts.size());
  }
}

TEST(PipelineInterop, SavedAndLoadedIsTheSame) {
  const auto expected = nlohmann::json::parse(std::ifstream(pipelines_folder() + "/expected.json"));
  for (const auto& [name, digits] : expected.items()) {
    const TokenizerSpec spec = Tokenizer::load(pipelines_folder() + "/" + name + ".json").spec();
    EXPECT_EQ(parse_tokenizer_json(to_tokenizer_json(spec), name), spec) << name;
  }
}

}  // namespace
}  // namespace echelon
