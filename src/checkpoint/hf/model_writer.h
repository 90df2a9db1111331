// Writes a Hugging Face folder, or one of adapters as PEFT does, from any layout. The files are planned first, and
// every rank writes its own slices in place. Nothing is gathered, and memory use is constant. The folder gets its final
// name only when it is complete.
#pragma once

#include "checkpoint/hf/adapter/adapter_config.h"
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/hf/weight_names.h"
#include "checkpoint/hf/wrapped_weights.h"
#include "checkpoint/safetensors/safetensors.h"
#include "spec/model_spec.h"

#include <cstdint>
#include <filesystem>

namespace echelon {

/// One per rank, constructed with equal arguments. Every rank: construct. One rank: begin(). Barrier. Every rank:
/// write() its slices. Barrier. The rank of begin(): finish().
class ModelWriter {
 public:
  struct Options {
    std::filesystem::path folder;  // the final name
    ModelSpec model;
    DType dtype = DType::float32;        // dtype of the weights in the files
    std::filesystem::path tokenizer{};   // tokenizer.json instead of the source's; empty: none
    ReadSpecialTokens special_tokens{};  // of the tokenizer; none: it has none
    std::filesystem::path source{};      // the model's first folder, of which everything else stays; empty: none
    std::int64_t max_file_bytes = 5'000'000'000;  // bytes of data; larger models get several files with an index
    TrainingNote training{};                      // for config.json
    std::map<std::string, DType> dtypes{};        // of tensors of the files that have another one
    bool text_only = false;  // of a source that wraps the model, only the model; else the other parts too
    std::optional<AdapterConfig> adapter{};  // its adapters alone are written
  };

  /// Plans only, for which it reads the headers of a source that wraps the model. Where these cannot be read any longer
  /// the model is written without its wrapper.
  explicit ModelWriter(Options options);
  /// A writer that started and did not finish deletes its temporary folder.
  ~ModelWriter();
  ModelWriter(const ModelWriter&) = delete;
  ModelWriter& operator=(const ModelWriter&) = delete;

  /// Creates the temporary folder next to the final one, config.json, the tokenizer, and the weight files in full size.
  /// Deletes a stale temporary folder of a crash. Throws Error if the final name exists and is not a model folder, or
  /// if the tokenizer or the model cannot be written. Throws Failure if the machine cannot write (a full disk, no
  /// permission).
  void begin();

  /// Writes a slice of a parameter, values of `dtype` at `host`; padding is omitted. Ranks may write at the same time;
  /// of the ranks with the same slice only one needs to (Param::is_first_copy). Throws Failure.
  void write(const std::string& name, const TensorSlice& slice, DType dtype, const void* host);

  /// The biases of choices, of all layers with experts, by one rank. Throws Failure.
  void write_router_bias(const std::vector<float>& biases);

  /// Syncs everything to disk and renames the folder to its final name, replacing an existing model folder. Throws
  /// Failure.
  void finish();

  /// Elements that this rank has written. Over all ranks they sum to `model.num_parameters()`, and the elements of
  /// biases of choices, if each was written once.
  [[nodiscard]] std::int64_t num_written() const { return num_written_; }

 private:
  Options options_;
  std::filesystem::path temporary_;
  std::map<std::string, PlacedParameter, std::less<>> parameters_;
  WrappedWeights wrapped_;
  FolderPlan plan_;
  bool owns_temporary_ = false;
  std::int64_t num_written_ = 0;
};

}  // namespace echelon
