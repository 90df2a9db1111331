// Compares with Hugging Face's library: its files and ids (made by tests/interop/check_tokenizer.py). Also writes ours
// for that script to check.
#include "crc.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

const std::string fixtures = std::string(ECHELON_SOURCE_DIR) + "/tests/data/tokenizers/";
const std::string written = std::string(ECHELON_BINARY_DIR) + "/tokenizers/";

TEST(TokenizerInterop, GivesTheLibrarysIdsForTheLibrarysFiles) {
  const Json expected = Json::parse(std::ifstream(fixtures + "ids.json"));
  const auto text = expected.at("text").get<std::string>();
  ASSERT_EQ(expected.at("ids").size(), 4u);
  for (const auto& [name, ids] : expected.at("ids").items()) {
    const Tokenizer tokenizer = Tokenizer::load(fixtures + name + ".json");
    EXPECT_EQ(tokenizer.encode(text), ids.get<Ids>()) << name;
    const bool normalizes = name == "one_digit";
    EXPECT_EQ(tokenizer.decode(ids.get<Ids>()) == text, !normalizes) << name;
  }
}

TEST(TokenizerInterop, LearnsTheLibrarysMerges) {
  const Json expected = Json::parse(std::ifstream(fixtures + "merges.json"));
  ASSERT_EQ(expected.at("digests").size(), 45u);
  for (const Json& request : expected.at("digests")) {
    BpeTrainer trainer;
    for (const Json& document : expected.at("corpora").at(request[0])) trainer.add(document.get<std::string>());
    const TokenizerSpec spec = trainer.train(request[1], request[2]);
    std::string merges;
    for (const Merge& merge : spec.merges)
      merges +=
          to_byte_alphabet(spec.tokens.at(merge.left)) + " " + to_byte_alphabet(spec.tokens.at(merge.right)) + "\n";
    EXPECT_EQ(crc32_of(merges), request[3].get<std::uint32_t>()) << request << ", " << spec.merges.size() << " merges";
  }
}

TEST(TokenizerInterop, WritesFilesForTheLibraryToCheck) {
  const auto text = Json::parse(std::ifstream(fixtures + "ids.json")).at("text").get<std::string>();
  std::filesystem::create_directories(written);
  Json ids = Json::object();
  const auto write = [&](const std::string& name, const Tokenizer& tokenizer) {
    tokenizer.save(written + name + ".json");
    ids[name] = Tokenizer::load(written + name + ".json").encode(text);
    EXPECT_EQ(ids[name].get<Ids>(), tokenizer.encode(text));
  };
  for (const char* name : {"byte_level", "three_digits", "one_digit", "chain"})
    write(name, Tokenizer::load(fixtures + name + ".json"));
  BpeTrainer trainer;
  trainer.add(text);
  write("trained", Tokenizer(trainer.train(500)));
  std::ofstream(written + "ids.json") << Json{{"text", text}, {"ids", ids}};
}

}  // namespace
}  // namespace echelon
