#include "data/tokenizer/bpe_trainer.h"

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"

#include <xxhash.h>

#include <algorithm>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace echelon {
namespace {

// Longer words (a picture in base64, a genome) are split, since each merge costs the length of its words.
constexpr std::size_t longest_word = 256;

using Pair = std::pair<std::int32_t, std::int32_t>;

struct PairHash {
  std::size_t operator()(Pair pair) const {
    return static_cast<std::size_t>(pair.first) * 0x9e3779b97f4a7c15u ^
           static_cast<std::size_t>(pair.second) * 0xc2b2ae3d27d4eb4fu;
  }
};

struct Word {
  std::size_t first;  // in symbols_
  std::size_t length;
  std::int64_t count;
};

struct PairUse {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  // words that contained the pair, possibly no longer
};

struct Candidate {
  std::int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

/// The words as sequences of symbols, and the count of each pair of neighbours.
class PairTable {
 public:
  void add_word(std::span<const std::int32_t> symbols, std::int64_t count) {
    words_.push_back({symbols_.size(), symbols.size(), count});
    symbols_.insert(symbols_.end(), symbols.begin(), symbols.end());
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) note(words_.size() - 1, {symbols[i], symbols[i + 1]}, count);
  }

  void start() {
    for (const auto& [pair, use] : uses_) candidates_.push({use.count, pair});
  }

  /// The most frequent pair with its count; count 0 if none is left. A count increases only in merge(), which inserts
  /// the pair again. Decreases leave stale candidates, which are reinserted with their lower count.
  Candidate pop_best() {
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      const auto use = uses_.find(best.pair);
      if (use == uses_.end() || use->second.count == 0) continue;
      if (use->second.count == best.count) return best;
      candidates_.push({use->second.count, best.pair});
    }
    return {0, {}};
  }

  void merge(Pair pair, std::int32_t result) {
    const std::vector<std::uint32_t> words = std::move(uses_.at(pair).words);
    fresh_.clear();
    for (const std::uint32_t word : words) merge_in(word, pair, result);
    uses_.erase(pair);
    std::sort(fresh_.begin(), fresh_.end());
    fresh_.erase(std::unique(fresh_.begin(), fresh_.end()), fresh_.end());
    for (const Pair& created : fresh_) {
      if (const auto use = uses_.find(created); use != uses_.end() && use->second.count > 0)
        candidates_.push({use->second.count, created});
    }
  }

 private:
  void note(std::size_t word, Pair pair, std::int64_t count) {
    PairUse& use = uses_[pair];
    use.count += count;
    if (use.words.empty() || use.words.back() != word) use.words.push_back(static_cast<std::uint32_t>(word));
  }

  // All old neighbours are subtracted and all new ones added, which handles overlaps such as aaaa.
  void merge_in(std::size_t word_index, Pair pair, std::int32_t result) {
    Word& word = words_[word_index];
    std::int32_t* symbols = symbols_.data() + word.first;
    const auto occurs = [&](std::size_t i) {
      return i + 1 < word.length && symbols[i] == pair.first && symbols[i + 1] == pair.second;
    };
    std::size_t at = 0;
    while (at < word.length && !occurs(at)) ++at;
    if (at == word.length) return;  // an earlier merge removed it
    for (std::size_t i = 0; i + 1 < word.length; ++i) uses_.at({symbols[i], symbols[i + 1]}).count -= word.count;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < word.length; ++kept) {
      const bool is_merged = occurs(i);
      symbols[kept] = is_merged ? result : symbols[i];
      i += is_merged ? 2 : 1;
    }
    word.length = kept;
    for (std::size_t i = 0; i + 1 < word.length; ++i) {
      const Pair now{symbols[i], symbols[i + 1]};
      if (now.first == result || now.second == result) {
        note(word_index, now, word.count);
        fresh_.push_back(now);
      } else {
        uses_.at(now).count += word.count;
      }
    }
  }

  std::vector<std::int32_t> symbols_;
  std::vector<Word> words_;
  std::unordered_map<Pair, PairUse, PairHash> uses_;
  std::priority_queue<Candidate> candidates_;
  std::vector<Pair> fresh_;  // pairs that the current merge created
};

}  // namespace

std::size_t BpeTrainer::Hash::operator()(std::string_view bytes) const {
  return XXH3_64bits(bytes.data(), bytes.size());
}

BpeTrainer::BpeTrainer() : splitter_(byte_level_splitter({std::string(gpt2_pattern)})) {}

void BpeTrainer::add(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(end_of_text), text.size());
    splitter_.split(text.substr(0, end), true, *this);
    text.remove_prefix(std::min(end + end_of_text.size(), text.size()));
  }
}

void BpeTrainer::take(std::string_view word) {
  for (; word.size() > longest_word; word.remove_prefix(longest_word)) count(word.substr(0, longest_word));
  count(word);
}

void BpeTrainer::count(std::string_view word) {
  const auto found = word_counts_.find(word);
  if (found != word_counts_.end()) {
    ++found->second;
  } else {
    word_counts_.emplace(word, 1);
  }
}

TokenizerSpec BpeTrainer::train(std::int64_t vocab_size) const {
  require(vocab_size >= 257 && vocab_size <= 1 << 24,
          "vocab_size = {} is not in [257, {}]: 256 bytes, the document separator and the merges", vocab_size, 1 << 24);
  TokenizerSpec spec;
  spec.splitter = byte_level_splitter({std::string(gpt2_pattern)});
  spec.decoder = {{.kind = DecodeStep::Kind::byte_level}};
  std::int32_t id_of_byte[256];
  for (const std::uint8_t byte : bytes_in_vocabulary_order()) {
    id_of_byte[byte] = static_cast<std::int32_t>(spec.tokens.size());
    spec.tokens.emplace_back(1, static_cast<char>(byte));
  }

  PairTable table;
  std::vector<std::int32_t> symbols;
  for (const auto& [word, count] : word_counts_) {
    symbols.clear();
    for (const char byte : word) symbols.push_back(id_of_byte[static_cast<std::uint8_t>(byte)]);
    table.add_word(symbols, count);
  }
  table.start();
  // "abc" may come from ab + c or from a + bc: one token, two merges.
  std::unordered_map<std::string, std::int32_t> ids;
  std::unordered_map<Pair, std::int32_t, PairHash> results;  // such a token can recreate a pair whose merge is known
  while (static_cast<std::int64_t>(spec.tokens.size()) < vocab_size - 1) {
    const auto [count, pair] = table.pop_best();
    if (count < 2) break;
    const std::string joined =
        spec.tokens[static_cast<std::size_t>(pair.first)] + spec.tokens[static_cast<std::size_t>(pair.second)];
    const auto [id, is_new_token] = ids.emplace(joined, static_cast<std::int32_t>(spec.tokens.size()));
    if (is_new_token) spec.tokens.push_back(joined);
    const auto [result, is_new_merge] = results.emplace(pair, id->second);
    if (is_new_merge) spec.merges.push_back({pair.first, pair.second, id->second});
    table.merge(pair, result->second);
  }
  spec.added.push_back({static_cast<std::int32_t>(spec.tokens.size()), std::string(end_of_text), true});
  spec.tokens.emplace_back(end_of_text);
  return spec;
}

}  // namespace echelon
