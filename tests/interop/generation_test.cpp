// Greedy generation with the cache against transformers': tests/interop/generated.json, made by make_generated.py.
#include "checkpoint/scratch_folder.h"
#include "engine/generation/generate.h"
#include "interop/fixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace echelon::testing {
namespace {

using nlohmann::json;

/// A character for each token of the fixtures, and each as the tokenizer's only token for it.
std::string text_of(const std::vector<std::int32_t>& tokens) {
  std::string text;
  for (const std::int32_t token : tokens) text += static_cast<char>('A' + token);  // A to i
  return text;
}

std::string characters_tokenizer(std::int32_t vocab_size) {
  json vocabulary;
  for (std::int32_t token = 0; token < vocab_size; ++token) vocabulary[text_of({token})] = token;
  return json({{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}},
               {"decoder", {{"type", "Fuse"}}}})
      .dump();
}

json read_json(const std::filesystem::path& path) { return json::parse(std::ifstream(path)); }

class GenerationInterop : public ::testing::TestWithParam<std::string> {};

// Claim (reference): Greedy generation gives transformers' tokens, for all families.
// Bound: 32 tokens of each.
// Tests: GenerationInterop
TEST_P(GenerationInterop, GivesTheSameTokens) {
  const json expected = read_json(std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop/generated.json");
  const json& of_model = expected.at(GetParam());
  const Fixture fixture(GetParam());
  const ScratchFolder scratch;
  json config = read_json(fixture.folder / "config.json");
  config.merge_patch(of_model.at("config"));  // room for the tokens
  put(scratch / "config.json", config.dump());
  std::filesystem::copy_file(fixture.folder / "model.safetensors", scratch / "model.safetensors");
  put(scratch / "tokenizer.json", characters_tokenizer(static_cast<std::int32_t>(fixture.model.vocab_size)));
  const std::vector<std::int32_t> prompt = of_model.at("prompt"), tokens = of_model.at("tokens");
  GenerateOptions options = {.model = scratch.path(),
                             .prompt = text_of(prompt),
                             .max_new_tokens = std::ssize(tokens),
                             .sampling = {.temperature = 0},
                             .on_text = {}};
  const Generation generation = *generate(options);
  EXPECT_EQ(generation.num_prompt_tokens, std::ssize(prompt));
  EXPECT_EQ(generation.text, text_of(tokens));

  // A model that stays in memory gives the tokens of one that is read for each text, whatever it answered before. Its
  // tokenizer is not read again.
  const std::filesystem::path file = scratch / "tokenizer.json", elsewhere = scratch / "elsewhere.json";
  const Tokenizer tokenizer = Tokenizer::load(file.string());
  std::filesystem::rename(file, elsewhere);
  const std::vector<std::ptrdiff_t> sizes = {2, std::ssize(prompt), 3, std::ssize(prompt) - 1, 1};
  const auto first = [&](std::ptrdiff_t size) { return std::vector(prompt.begin(), prompt.begin() + size); };
  std::vector<std::vector<std::int32_t>> answers;
  generate_each(
      options, tokenizer,
      [&] { return answers.size() < sizes.size() ? std::optional(first(sizes[answers.size()])) : std::nullopt; },
      [&](const Generation& answer) { answers.push_back(answer.tokens); });
  std::filesystem::rename(elsewhere, file);
  ASSERT_EQ(answers.size(), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    options.prompt = text_of(first(sizes[i]));
    EXPECT_EQ(answers[i], generate(options)->tokens) << i;
  }
}

std::vector<std::string> all_generated() {
  std::vector<std::string> names;
  const json generated = read_json(std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop/generated.json");
  for (const auto& [name, of_model] : generated.items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GenerationInterop, ::testing::ValuesIn(all_generated()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace echelon::testing
