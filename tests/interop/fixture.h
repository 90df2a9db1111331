// The expected numbers of tests/interop/fixtures (README.md beside them), and runs of Echelon on the same text.
#pragma once

#include "checkpoint/hf/adapter/adapter_reader.h"
#include "data/dataset_batches.h"
#include "engine/tensor_collection.h"
#include "spec/config/run_config.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace echelon::testing {

/// The text of the fixtures: token i of sequence n is (7 i^2 + 3 n i + 11 n + 5) mod 41, its target token i + 1 or,
/// where (n + i) mod 5 = 0, none; a document begins where (i + 3 n) mod 7 = 5.
class FixtureText : public BatchSource {
 public:
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override;
  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override;
};

/// Sequences 0 and 1 as a dataset of documents with a loss mask, read in order as `data` says. Packed, the same
/// documents are in other places of the two sequences.
[[nodiscard]] DatasetBatches documents_of_text(const DataConfig& data);

struct Fixture {
  /// `parent`: fixtures, or variants, which fewer tests run.
  explicit Fixture(const std::string& name, const std::string& parent = "fixtures");

  std::filesystem::path folder;
  ModelSpec model;
  std::map<std::string, std::vector<double>> expected;  // integers too

  /// One rank, the two sequences of the expected gradients, no clipping.
  [[nodiscard]] RunConfig config(DType dtype) const;
};

[[nodiscard]] std::map<std::string, std::vector<double>> read_all(const std::filesystem::path& safetensors);

struct Outcome {
  std::filesystem::path adapters_folder = {};  // given: where they are written after the last step
  const AdapterReader* adapters = nullptr;     // given: where the adapters of the run start
  std::vector<double> losses, grad_norms;
  std::vector<double> router_losses, loads;  // [steps, 3], summed over layers; [steps, layers, E]
  TensorCollection gradients;                // of the first step
  std::vector<double> bias;                  // of the choices, after the last step
  TensorCollection weights;                  // after the last step
  std::vector<double> logits;                // [2, 16, V] before the first step; of one rank only
};

/// Loads the fixture's folder into the config's layout and runs `config.training.steps` steps. learning_rates: one per
/// step.
void run(const Fixture& fixture, const RunConfig& config, const std::vector<double>& learning_rates, Outcome& outcome,
         const BatchSource& text = FixtureText());

/// Of sequences 0 and 1, 2 and 3 and so on, by one rank: [num_batches, 2, 16, V].
[[nodiscard]] std::vector<double> logits_of_batches(const Fixture& fixture, const RunConfig& config,
                                                    std::int64_t num_batches);

/// Loads the folder into the config's layout and writes it again.
void rewrite(const Fixture& fixture, const RunConfig& config, const std::filesystem::path& folder);

/// Writes tokens (int32) and logits (float64) of the fixture's two sequences.
void write_logits(const Fixture& fixture, const std::vector<double>& logits, const std::filesystem::path& path);

}  // namespace echelon::testing
