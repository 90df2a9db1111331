#include "predict/documents/document_load.h"

#include "base/error.h"
#include "blueprint/unit_trace.h"
#include "context/key_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

namespace echelon {
namespace {

/// Splits a stream of documents into sequences.
class Sequences {
 public:
  Sequences(std::span<const std::int64_t> lengths, std::int64_t seq_len) : lengths_(lengths), seq_len_(seq_len) {}

  /// The documents of the next one; false at the end of the stream.
  bool next(DocumentOffsets& offsets) {
    offsets.assign(1, 0);
    std::int64_t filled = 0;
    while (filled < seq_len_) {
      if (left_ == 0) {
        if (document_ == lengths_.size()) return false;
        left_ = lengths_[document_++];
      }
      const std::int64_t taken = std::min(left_, seq_len_ - filled);
      left_ -= taken;
      filled += taken;
      if (taken > 0) offsets.push_back(static_cast<std::int32_t>(filled));
    }
    return true;
  }

 private:
  std::span<const std::int64_t> lengths_;
  std::int64_t seq_len_, left_ = 0;  // of the document that was split
  std::size_t document_ = 0;
};

double sum_of(std::span<const std::int64_t> values) {
  return static_cast<double>(std::accumulate(values.begin(), values.end(), std::int64_t{0}));
}

/// Of the rank with the most of them, of which `head_ranks` share the heads of their queries.
double most_of(std::vector<std::int64_t> pairs, int head_ranks) {
  share_pairs(pairs, head_ranks);
  return static_cast<double>(*std::max_element(pairs.begin(), pairs.end())) / head_ranks;
}

/// Pairs that the plan counts for the rank with the most of them.
double planned_pairs(const TokenSplit& split, int head_ranks) {
  if (reads_documents(split.balancer)) {  // as if the sequence were one document, of which all ranks have as much
    const auto T = static_cast<double>(split.seq_len);
    return T * (T + 1) / 2 / split.cp;
  }
  return most_of(causal_pairs(split), head_ranks);
}

/// Sums over the sequences of microbatches.
class Counter {
 public:
  explicit Counter(const RunConfig& config)
      : split_(token_split(config)),
        exchange_(key_exchange(config.parallelism)),
        num_sequences_(config.training.micro_batch_size),
        pairs_(static_cast<std::size_t>(split_.cp)) {}

  /// False if the stream ends before the microbatch is full.
  bool add_microbatch(Sequences& sequences) {
    std::vector<std::int64_t> of_ranks(pairs_.size(), 0);
    std::int64_t seen = 0, num_pieces = 0;
    for (std::int64_t i = 0; i < num_sequences_; ++i) {
      if (!sequences.next(documents_)) return false;
      num_pieces += std::ssize(documents_) - 1;
      lists_.assign(split_, documents_);
      count_pairs(lists_, {documents_, split_.window}, pairs_);
      for (std::size_t rank = 0; rank < pairs_.size(); ++rank) of_ranks[rank] += pairs_[rank];
      seen += rows_of_hops();
    }
    const double all = sum_of(of_ranks), most = most_of(of_ranks, exchange_.head_ranks);
    num_pieces_ += num_pieces;
    pairs_sum_ += all;
    largest_ += most * split_.cp / all;
    slowest_ += most;
    rows_ += static_cast<double>(seen);
    ++num_microbatches_;
    return true;
  }

  [[nodiscard]] DocumentLoad load() const {
    const auto n = static_cast<double>(num_microbatches_), B = static_cast<double>(num_sequences_),
               T = static_cast<double>(split_.seq_len);
    const double sent = n * B * static_cast<double>((split_.cp - 1) * split_.cp * rows_per_rank(split_));
    return {.num_sequences = num_microbatches_ * num_sequences_,
            .mean_length = n * B * T / static_cast<double>(num_pieces_),
            .pairs_share = pairs_sum_ / (n * B * T * (T + 1) / 2),
            .largest_over_mean = largest_ / n,
            .slowest_share = slowest_ / (n * B * planned_pairs(split_, exchange_.head_ranks)),
            .rows_share = is_ring() ? rows_ / sent : 1};
  }
  [[nodiscard]] bool is_empty() const { return num_microbatches_ == 0; }

 private:
  [[nodiscard]] std::int64_t rows_of_hops() {
    if (!is_ring()) return 0;
    traffic_.count(lists_, {documents_, split_.window});
    std::int64_t rows = 0;
    for (int source = 0; source < split_.cp; ++source)
      for (int hop = 1; hop < split_.cp; ++hop) rows += traffic_.ring(source, hop);
    return rows;
  }

  [[nodiscard]] bool is_ring() const { return split_.cp > 1 && exchange_.method == ContextMethod::ring; }

  TokenSplit split_;
  KeyExchange exchange_;
  std::int64_t num_sequences_;
  std::vector<std::int64_t> pairs_;
  DocumentOffsets documents_;
  TokenLists lists_;
  KeyTraffic traffic_;
  std::int64_t num_microbatches_ = 0, num_pieces_ = 0;
  double pairs_sum_ = 0, largest_ = 0, slowest_ = 0, rows_ = 0;
};

bool read_number(std::string_view text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number);
}

}  // namespace

DocumentLoad document_load(const RunConfig& config, std::span<const std::int64_t> lengths,
                           std::int64_t most_microbatches) {
  require(config.data.reset_attention_mask,
          "--documents changes nothing where tokens attend across documents: data.reset_attention_mask = false (use "
          "true)");
  Sequences sequences(lengths, config.training.seq_len);
  Counter counter(config);
  std::int64_t num_left = most_microbatches;
  while (num_left > 0 && counter.add_microbatch(sequences)) --num_left;
  require(!counter.is_empty(), "--documents has {} tokens, fewer than a microbatch of {} sequences of {} (use more)",
          std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), config.training.micro_batch_size,
          config.training.seq_len);
  return counter.load();
}

std::vector<std::int64_t> drawn_lengths(double mean, double spread, std::int64_t num_tokens) {
  const double variance = std::log1p(spread * spread / (mean * mean)), median = mean / std::exp(variance / 2);
  std::mt19937_64 random(1);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11U) + 0.5) * 0x1p-53; };
  std::vector<std::int64_t> lengths;
  for (std::int64_t sum = 0; sum < num_tokens; sum += lengths.back()) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
    const double length = std::round(median * std::exp(std::sqrt(variance) * normal));
    lengths.push_back(static_cast<std::int64_t>(std::clamp(length, 1.0, static_cast<double>(num_tokens))));
  }
  return lengths;
}

std::pair<double, double> parse_length_distribution(std::string_view text) {
  constexpr double longest = 1e9;
  const std::size_t colon = std::min(text.find(':'), text.size());
  double mean = 0, spread = 0;
  const bool has_mean = read_number(text.substr(0, colon), mean) && mean >= 1 && mean <= longest;
  const bool has_spread = colon == text.size() || read_number(text.substr(colon + 1), spread);
  require(has_mean && has_spread && spread >= 0 && spread <= longest,
          "--documents={} is neither an .idx file nor a mean length and its spread in tokens (examples: "
          "--documents=data/train.idx, --documents=2000:4000)",
          text);
  return {mean, colon == text.size() ? mean : spread};
}

std::string to_text(const DocumentLoad& load) {
  return fmt::format(
      "documents, {} sequences in pieces of {:.0f} tokens on average: {:.2f} % of the pairs of whole sequences, the "
      "largest rank {:.3f} times the mean; of the rows of keys that a ring sends, {:.1f} % are seen\n",
      load.num_sequences, load.mean_length, 100 * load.pairs_share, load.largest_over_mean, 100 * load.rows_share);
}

}  // namespace echelon
