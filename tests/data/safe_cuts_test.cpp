// BPE on characters: texts are split where no merge crosses, and the ids must be those of the whole text.
#include "data/tokenizer/encoder.h"
#include "naive_bpe.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

class SafeCuts : public ::testing::TestWithParam<bool> {};

TEST_P(SafeCuts, RandomTextsHaveTheIdsOfTheirWhole) {
  std::mt19937 random(GetParam() ? 5 : 6);
  for (int trial = 0; trial < 40; ++trial) {
    const TokenizerSpec spec = random_spec(random, GetParam());
    const Tokenizer tokenizer(spec);
    Encoder encoder(tokenizer);
    for (int sample = 0; sample < 40; ++sample) {
      std::vector<std::string> characters(random() % 60);
      std::string text;
      for (std::string& character : characters) text += character = alphabet[random() % alphabet.size()];
      std::vector<std::int32_t> ids;
      encoder.append(text, ids);
      EXPECT_EQ(ids, naive_ids(spec, characters)) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ByteFallback, SafeCuts, ::testing::Bool());

}  // namespace
}  // namespace echelon
