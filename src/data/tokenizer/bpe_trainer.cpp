#include "data/tokenizer/bpe_trainer.h"

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/learning/pair_merger.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

namespace echelon {
namespace {

/// Merges in order. Of a pair that was merged several times the last merge counts, as in Hugging Face's library.
std::vector<Merge> last_of_each(const std::vector<Merge>& merges) {
  std::map<SymbolPair, std::size_t> last;
  for (std::size_t i = 0; i < merges.size(); ++i) last[{merges[i].left, merges[i].right}] = i;
  std::vector<Merge> kept;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    if (last.at({merges[i].left, merges[i].right}) == i) kept.push_back(merges[i]);
  }
  return kept;
}

}  // namespace

BpeTrainer::BpeTrainer() : splitter_(byte_level_splitter({std::string(gpt2_pattern)})) {}

void BpeTrainer::add(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(end_of_text), text.size());
    splitter_.split(text.substr(0, end), true, *this);
    text.remove_prefix(std::min(end + end_of_text.size(), text.size()));
  }
}

TokenizerSpec BpeTrainer::train(std::int64_t vocab_size, std::int64_t min_frequency) const {
  require(vocab_size >= 257 && vocab_size <= 1 << 24,
          "vocab_size = {} is not in [257, {}]: 256 bytes, the document separator and the merges", vocab_size, 1 << 24);
  require(min_frequency >= 1, "min_frequency = {} is not at least 1", min_frequency);
  TokenizerSpec spec;
  spec.splitter = byte_level_splitter({std::string(gpt2_pattern)});
  spec.decoder = {{.kind = DecodeStep::Kind::byte_level}};
  std::int32_t id_of_byte[256];
  for (const std::uint8_t byte : bytes_in_vocabulary_order()) {
    id_of_byte[byte] = static_cast<std::int32_t>(spec.tokens.size());
    spec.tokens.emplace_back(1, static_cast<char>(byte));
  }

  PairMerger merger;
  std::vector<std::int32_t> symbols;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    symbols.clear();
    for (const char byte : words_.word(i)) symbols.push_back(id_of_byte[static_cast<std::uint8_t>(byte)]);
    merger.add_word(symbols, words_.count(i));
  }
  merger.start();
  std::unordered_map<std::string, std::int32_t>
      ids;  // "abc" may come from ab + c or from a + bc: one token, two merges
  while (static_cast<std::int64_t>(spec.tokens.size()) < vocab_size - 1) {
    const PairMerger::Candidate best = merger.pop_best();
    if (best.count < min_frequency) break;
    const auto [left, right] = best.pair;
    const std::string joined =
        spec.tokens[static_cast<std::size_t>(left)] + spec.tokens[static_cast<std::size_t>(right)];
    const auto [id, is_new] = ids.emplace(joined, static_cast<std::int32_t>(spec.tokens.size()));
    if (is_new) spec.tokens.push_back(joined);
    spec.merges.push_back({left, right, id->second});
    merger.merge(best, id->second);
  }
  spec.merges = last_of_each(spec.merges);
  spec.added.push_back({static_cast<std::int32_t>(spec.tokens.size()), std::string(end_of_text), true});
  spec.tokens.emplace_back(end_of_text);
  return spec;
}

}  // namespace echelon
