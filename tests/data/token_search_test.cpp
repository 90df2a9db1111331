// BPE by a search for tokens, compared with merges one by one.
#include "data/tokenizer/models/token_search.h"
#include "data/tokenizer/bpe_trainer.h"
#include "naive_bpe.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

// Where merges are not in the order in which they make tokens, the search may find nothing.
TEST(TokenSearch, GivesTheIdsOfTheMergesOrNone) {
  std::mt19937 random(12);
  int num_found = 0, num_not_found = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const TokenizerSpec spec = random_spec(random, trial % 2 == 0);
    std::vector<std::int32_t> symbols;
    for (std::size_t i = 0; i < num_known; ++i) {
      const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), alphabet[i]);
      symbols.push_back(static_cast<std::int32_t>(found - spec.tokens.begin()));
    }
    const MergeTable merges(spec.merges, 0);
    const TokenSearch search(spec, merges, symbols);
    for (int sample = 0; sample < 60; ++sample) {
      std::vector<std::string> characters(random() % 16);
      std::string text;
      for (std::string& character : characters) text += character = alphabet[random() % num_known];
      if (text.size() > TokenSearch::longest_piece) continue;
      std::vector<std::int32_t> ids;
      const bool is_found = search.append(text, merges, ids);
      ++(is_found ? num_found : num_not_found);
      EXPECT_EQ(ids, is_found ? naive_ids(spec, characters) : std::vector<std::int32_t>()) << text;
    }
  }
  EXPECT_GT(num_found, 1000);
  EXPECT_GT(num_not_found, 10);
}

// Symbols that are no tokens, and bytes that are none at all.
TEST(TokenSearch, FindsNothingWithoutSymbols) {
  TokenizerSpec spec;
  spec.tokens = {"a", "b", "ab"};
  spec.merges = {{0, 1, 2}};
  const MergeTable merges(spec.merges, 0);
  const TokenSearch search(spec, merges, std::vector<std::int32_t>{0, 1});
  std::vector<std::int32_t> ids;
  EXPECT_TRUE(search.append("aabb", merges, ids));
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 2, 1}));
  for (const std::string_view text : {"abc", "c", "ab\xff"}) EXPECT_FALSE(search.append(text, merges, ids)) << text;
  EXPECT_EQ(ids.size(), 3u);
}

// All that merges of a text have made are tokens that the search knows, but for tokens that several pairs make.
TEST(TokenSearch, FindsThePiecesOfALearnedTokenizer) {
  std::mt19937 random(13);
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "etaoin shrdlu"[random() % 13];
  BpeTrainer trainer;
  trainer.add(text);
  const TokenizerSpec spec = trainer.train(700);
  std::vector<std::int32_t> symbols(256);
  for (std::size_t id = 0; id < symbols.size(); ++id) symbols[id] = static_cast<std::int32_t>(id);
  const MergeTable merges(spec.merges, 0);
  const TokenSearch search(spec, merges, symbols);
  std::size_t num_found = 0;
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < 10000; at += 10) num_found += search.append(text.substr(at, 10), merges, ids) ? 1 : 0;
  EXPECT_GE(num_found, 990u);
}

}  // namespace
}  // namespace echelon
