// Writes a Hugging Face folder from any layout: the files are planned beforehand, and every rank writes its own slices
// to their places in them. Nothing is gathered, and memory stays constant. The folder bears its final name only when it
// is whole.
#pragma once

#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/weight_names.h"
#include "spec/model_spec.h"

#include <cstdint>
#include <filesystem>

namespace echelon {

/// Throws Error, before a long run rather than at its first save, if no folder can say the model or the tokenizer.json
/// (empty: none) is none.
void require_writable(const ModelSpec& model, const std::filesystem::path& tokenizer);

/// One per rank, all made alike. Every rank: construct. One rank: begin(). Barrier. Every rank: write() its slices.
/// Barrier. The rank of begin(): finish().
class ModelWriter {
 public:
  struct Options {
    std::filesystem::path folder;  // the final name
    ModelSpec model;
    DType dtype = DType::float32;                 // of the weights in the files
    std::filesystem::path tokenizer{};            // tokenizer.json, copied; empty: none
    std::int64_t max_file_bytes = 5'000'000'000;  // of data; more become several files with an index
    std::int64_t training_seq_len = 0;            // tokens per sequence of the run, for config.json; 0: not said
  };

  /// Plans only: touches no file.
  explicit ModelWriter(Options options);
  /// A writer that began and did not finish deletes its temporary folder.
  ~ModelWriter();
  ModelWriter(const ModelWriter&) = delete;
  ModelWriter& operator=(const ModelWriter&) = delete;

  /// Creates the temporary folder beside the final one (a stale one of a crash is deleted), config.json, the tokenizer,
  /// and the weight files in full size. Throws Error if the final name is taken by something that is not a model
  /// folder, or if the tokenizer or the model cannot be written; Failure if the machine cannot (a full disk, no
  /// permission).
  void begin();

  /// Writes a slice of a parameter, values of `dtype` at `host`; padding is left out. Slices of different ranks may be
  /// written at the same time; of those that hold the same slice one is enough (Param::is_first_copy). Throws Failure.
  void write(const std::string& name, const TensorSlice& slice, DType dtype, const void* host);

  /// Syncs all to the disk and gives the folder its final name; a model folder that had the name is replaced. Throws
  /// Failure.
  void finish();

  /// Numbers that this rank has written; over all ranks they sum up to `model.num_parameters()` when each parameter was
  /// written once.
  [[nodiscard]] std::int64_t num_written() const { return num_written_; }

 private:
  Options options_;
  std::filesystem::path temporary_;
  std::map<std::string, PlacedParameter, std::less<>> parameters_;
  FolderPlan plan_;
  bool owns_temporary_ = false;
  std::int64_t num_written_ = 0;
};

}  // namespace echelon
