// Reads the weights of a model into any layout, from a Hugging Face folder or a checkpoint of a run. Adapters of either
// kind are merged with their base.
#pragma once

#include "checkpoint/hf/hf_reader.h"
#include "checkpoint/merged_weights.h"
#include "checkpoint/state/state_reader.h"
#include "spec/config/run_config.h"

#include <memory>
#include <variant>
#include <vector>

namespace echelon {

/// The weights of a checkpoint, as its run computes with them.
class SavedWeights {
 public:
  explicit SavedWeights(const std::filesystem::path& folder);
  [[nodiscard]] const RunConfig& config() const { return config_; }
  [[nodiscard]] const ModelSpec& spec() const { return config_.model; }
  [[nodiscard]] const Manifest& manifest() const { return reader_->manifest(); }
  void verify_copies() const { reader_->verify_copies(); }
  /// Values of `dtype` at `out`, as ModelReader::read.
  void read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const;
  [[nodiscard]] std::vector<float> router_bias() const { return reader_->manifest().scalars.routers.bias; }

 private:
  std::shared_ptr<const StateReader> reader_;
  RunConfig config_;
};

/// Holds no open file and no weights; ranks may share one.
class ModelReader {
 public:
  /// Throws Error naming the file and the fault, or, of a folder with models in it, the closest one.
  explicit ModelReader(const std::filesystem::path& folder);

  [[nodiscard]] const ModelSpec& spec() const;

  /// Reads a slice of a parameter, values of `dtype` at `out`; padding is zero. The head of a tied model is the
  /// embedding. Throws Error if the sizes of the folder's parameter differ from the slice's whole tensor, if a value is
  /// NaN or infinite, or if the file is damaged.
  void read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const;

  /// The same, without rounding: of a checkpoint the values with which its run computed.
  void read_exactly(const std::string& name, const TensorSlice& slice, double* out) const;

  /// The biases of choices, layer after layer [layers with experts, experts]; empty if the model has none.
  [[nodiscard]] std::vector<float> router_bias() const;

  /// A sentence with what of a folder is left out (HuggingFaceReader::note); empty: nothing.
  [[nodiscard]] std::string note() const;

 private:
  std::variant<HuggingFaceReader, SavedWeights, MergedWeights> source_;
};

/// Whether the folder is a complete checkpoint of a run, a step-N.
[[nodiscard]] bool is_checkpoint(const std::filesystem::path& folder);

/// Whether it is the checkpoint of a run with adapters, or a folder of PEFT's.
[[nodiscard]] bool has_adapters(const std::filesystem::path& folder);

/// The base that a folder of PEFT's names. Throws Error if it is no folder, or one of adapters.
[[nodiscard]] std::filesystem::path base_of_adapters(const std::filesystem::path& folder);

/// dropout_note of the folder of a model, whose weights are not read. Throws Error.
[[nodiscard]] std::string note_of_model(const std::filesystem::path& folder);

/// Throws Error if the folder has no config.json, with one next to it that has.
void require_model(const std::filesystem::path& folder);

/// The model of a Hugging Face folder's config.json or of a checkpoint. Throws Error.
[[nodiscard]] ModelSpec read_model_spec(const std::filesystem::path& folder);

/// The tokens per sequence with which the model of the folder was trained; where it does not say, all its positions, at
/// most 8,192. Throws Error.
[[nodiscard]] std::int64_t read_training_seq_len(const std::filesystem::path& folder);

/// moe.capacity_factor of the run that trained the model of the folder; 0 where there was none, or none is known.
/// Throws Error.
[[nodiscard]] double read_capacity_factor(const std::filesystem::path& folder);
/// For commands that do not train: such a model drops rows in training alone. Empty without a factor.
[[nodiscard]] std::string note_of_capacity(double capacity_factor);

}  // namespace echelon
