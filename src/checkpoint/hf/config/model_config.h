// Hugging Face's config.json to ModelSpec and back, for the families of spec/families.
#pragma once

#include "spec/model_spec.h"
#include "tensor/dtype.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

/// The model of FOLDER/config.json. What would change the computation and is not supported is refused by name. Dropout
/// is ignored: Echelon has none. Throws Error naming the file, the key and the value.
[[nodiscard]] ModelSpec read_config_json(const std::filesystem::path& folder);

/// All that read_config_json would refuse of it, as sentences. Throws Error if it is not a JSON object.
[[nodiscard]] std::vector<std::string> faults_of_config(const std::filesystem::path& folder);

/// "attention_dropout = 0.1 is kept and not applied: Echelon has no dropout", of all such fields of FOLDER/config.json.
/// Empty: none is above 0. Throws Error.
[[nodiscard]] std::string dropout_note(const std::filesystem::path& folder);

/// Whether config.json can say to transformers 4 how RoPE is in layers with a window: it scales none of them.
[[nodiscard]] bool has_rope_of_version_4(const ModelSpec& model);

/// Ids of the tokenizer's special tokens, if known.
struct SpecialTokens {
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> eos;
};

/// Reads those of a tokenizer.json. Throws Error if it is none.
using ReadSpecialTokens = std::function<SpecialTokens(const std::filesystem::path&)>;

/// Throws Error with the key and the closest valid value if config.json cannot express the model: its family fixes
/// norms and biases, and GPT-2 has no grouped queries.
void require_sayable(const ModelSpec& model);

/// How a model was trained. In config.json transformers ignores it; 0 is not written there.
struct TrainingNote {
  std::int64_t seq_len = 0;  // tokens per sequence
  std::int64_t steps = 0;
  double capacity_factor = 0;  // of a mixture: experts dropped rows beyond it
};

/// What a config.json says in addition to the model.
struct ConfigNotes {
  DType dtype = DType::float32;  // of the weights
  SpecialTokens tokens{};
  bool replaces_tokens = false;  // these instead of the source's, also where they are unknown
  TrainingNote training{};
  std::filesystem::path source{};  // a folder of the family whose config.json keeps its other fields; empty: none
  bool text_only = false;          // of a source that wraps a language model, the language model alone
};

/// `folder`, if it has a config.json of that family or around a model of it; else empty. Throws Error if its
/// config.json is damaged.
[[nodiscard]] std::filesystem::path source_of(const std::filesystem::path& folder, Family family);

/// Writes FOLDER/config.json so that transformers 4.57 and 5 load the model. Throws Error if it cannot express the
/// model or the source's config.json is damaged, Failure if the file cannot be written.
void write_model_config(const std::filesystem::path& folder, const ModelSpec& model, const ConfigNotes& notes);

/// What FOLDER/config.json says of it. Without a length: all positions of the model, at most 8,192. Throws the errors
/// of read_config_json.
[[nodiscard]] TrainingNote read_training_note(const std::filesystem::path& folder);

}  // namespace echelon
