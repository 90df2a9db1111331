// Prepares a config for `verify`: a dtype with small rounding errors, a smaller model if requested, data, and a memory
// check.
#pragma once

#include "data/batch_source.h"
#include "spec/config/run_config.h"

#include <memory>
#include <string>
#include <vector>

namespace echelon {

struct VerifyRequest {
  std::int64_t num_steps = 3;
  DType dtype = DType::float64;  // or float32
  std::int64_t num_layers = 0;   // 0: as in the config
  std::int64_t hidden_size = 0;  // 0: as in the config
};

struct VerifySetup {
  RunConfig config;
  std::vector<std::unique_ptr<BatchSource>> sources;  // the config that runs, derived from the fields above
  std::vector<std::string> notes;                     // for the user: what was shrunk, which data, how much memory

  [[nodiscard]] const BatchSource& batches() const { return *sources.back(); }
};

/// The value of --dtype. Throws Error for a format in which rounding is too large.
[[nodiscard]] DType parse_verified_dtype(std::string_view name);

/// The model with fewer layers and a smaller width. Unchanged are the layout, the numbers of heads, and the remainders
/// of the feed-forward width and the vocabulary modulo the tensor-parallel degree. The vocabulary shrinks only without
/// a dataset. Throws Error if the layout needs a larger model.
[[nodiscard]] RunConfig shrunk(RunConfig config, const VerifyRequest& request, bool shrinks_vocabulary);

/// Throws Error for what cannot be verified, with the closest setting that can, and for more memory than this machine
/// has.
[[nodiscard]] VerifySetup set_up_verification(const RunConfig& config, const VerifyRequest& request);

}  // namespace echelon
