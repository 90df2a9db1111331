// Runs a small model for some steps under a layout, with ranks as threads or as they are given, and returns what can be
// compared with another layout.
#pragma once

#include "engine/layout_run.h"
#include "engine/tensor_collection.h"
#include "verify/reference.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace echelon::testing {

/// Which targets count.
enum class Targets : std::uint8_t {
  all,
  // Ignored at the begin of a sequence, unevenly over sequences and hence over ranks, and of some sequences everywhere.
  unequal,
  of_one_sequence,  // of each global batch: most ranks have none
  of_one_rank,      // a single one of each global batch, so that all other ranks have none
  one_token,        // of each global batch of packed data, in its first sequence; all else is padding
};

/// Tokens, targets and documents by a formula: some sequences are one document, in some each token is one. With
/// data.packing = best_fit the last tokens of most sequences are padding.
class FormulaBatches : public BatchSource {
 public:
  FormulaBatches(const RunConfig& config, Targets targets)
      : vocab_size_(config.model.vocab_size),
        batch_size_(config.training.global_batch_size),
        is_packed_(config.data.packing == Packing::best_fit),
        masks_ends_(config.data.eod_mask_loss),
        targets_(targets) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    const auto token = [&](std::int64_t i) {
      return static_cast<std::int32_t>((sequence * 7 + i * i * 3 + (sequence * i) % 5) % vocab_size_);
    };
    for (std::int64_t i = 0; i < seq_len; ++i) {
      tokens[i] = token(i);
      targets[i] = counts(sequence, i, seq_len) ? token(i + 1) : ignored_target;
    }
  }

  [[nodiscard]] std::int64_t num_tokens(std::int64_t sequence, std::int64_t seq_len) const override {
    return first_of_padding(sequence, seq_len);
  }

  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    std::int32_t start = 0;
    for (std::int64_t i = 0; i < seq_len; ++i) {
      if (starts_at(sequence, i, seq_len)) start = static_cast<std::int32_t>(i);
      starts[i] = start;
    }
  }

 private:
  [[nodiscard]] bool starts_at(std::int64_t sequence, std::int64_t i, std::int64_t seq_len) const {
    if (i == first_of_padding(sequence, seq_len)) return true;
    if (sequence % 7 == 3) return i == 0;
    return sequence % 7 == 5 || (sequence * 2 + i) % 5 == 4;
  }
  [[nodiscard]] std::int64_t first_of_padding(std::int64_t sequence, std::int64_t seq_len) const {
    if (targets_ == Targets::one_token) return sequence % batch_size_ == 0 ? 1 : 0;
    return is_packed_ ? seq_len - sequence % 4 : seq_len;
  }
  [[nodiscard]] bool counts(std::int64_t sequence, std::int64_t i, std::int64_t seq_len) const {
    if (targets_ == Targets::one_token) return i < first_of_padding(sequence, seq_len);
    if (!has_target(sequence, i, seq_len)) return false;
    switch (targets_) {
      case Targets::all: return true;
      case Targets::unequal: return i >= sequence * 3 % seq_len && sequence % 5 != 3;
      case Targets::one_token: break;
      case Targets::of_one_sequence: return sequence % batch_size_ == sequence / batch_size_ % batch_size_;
      case Targets::of_one_rank: return is_only_one(sequence, i, seq_len);
    }
    return true;
  }
  [[nodiscard]] bool has_target(std::int64_t sequence, std::int64_t i, std::int64_t seq_len) const {
    if (i + 1 >= first_of_padding(sequence, seq_len) && is_packed_) return false;
    return !masks_ends_ || !starts_at(sequence, i + 1, seq_len);
  }
  /// The first of its global batch that has a target, from a place on that differs over batches and their sizes.
  [[nodiscard]] bool is_only_one(std::int64_t sequence, std::int64_t i, std::int64_t seq_len) const {
    const std::int64_t batch = sequence / batch_size_, num_places = batch_size_ * seq_len;
    const std::int64_t place = sequence % batch_size_ * seq_len + i;
    for (std::int64_t k = 0; k < num_places; ++k) {
      const std::int64_t candidate = (batch * 17 + batch_size_ * 5 + 7 + k) % num_places;
      if (has_target(batch * batch_size_ + candidate / seq_len, candidate % seq_len, seq_len))
        return candidate == place;
    }
    return false;
  }

  std::int64_t vocab_size_, batch_size_;
  bool is_packed_, masks_ends_;
  Targets targets_;
};

struct Trajectory {
  std::vector<double> losses, grad_norms;
  double validation_loss = 0;
  std::vector<std::vector<double>> router_sums;      // of each step: loads and losses of the routers
  std::vector<std::vector<double>> exchange_counts;  // of each step, where experts are over ranks
  TensorCollection first_gradients, values;
};

/// What is not as in a plain run on threads.
struct RunOptions {
  Interpose interpose = {};
  std::function<void(const RankView& rank, std::int64_t step)> after_step = {};  // on every rank
  // Looks at a rank after its last step and an evaluation.
  std::function<void(const RankView& rank)> at_end = {};
  RankRunner run_ranks = {};
  std::optional<Schedule> schedule = {};  // in place of the config's
  Targets targets = Targets::unequal;
  Backend* backend = nullptr;  // null: processors
};

/// With ranks as processes, each process gets what its rank knows: its slices, and on rank 0 the losses.
[[nodiscard]] std::unique_ptr<Trajectory> run_training(const RunConfig& config, const RunOptions& options = {});

/// max|a - b| / max(max|b|, floor) over all tensors, and the name of the worst; names and counts must agree.
struct Difference {
  double error = 0;
  std::string name;
};
[[nodiscard]] Difference worst_difference(const TensorCollection& a, const TensorCollection& b, double floor);

/// The worst of each kind over all steps; of losses and norms relative to what is expected, with the step's name. `lr`:
/// the floor of a weight's size.
struct Errors {
  Difference loss, grad_norm, gradient, weight;
};
[[nodiscard]] Errors errors_of(const Trajectory& actual, const Trajectory& expected, double lr);

/// Losses and norms to `scalar_tolerance`, first gradients and weights to `tensor_tolerance`.
void expect_equal(const Trajectory& actual, const Trajectory& expected, double scalar_tolerance,
                  double tensor_tolerance, double lr);

/// Operations and collectives that complete late, with poison where their results will be: a wait that is missing
/// anywhere shows in the numbers.
[[nodiscard]] std::unique_ptr<RankInterposer> delayed(Ops& ops, Mesh& mesh);

}  // namespace echelon::testing
