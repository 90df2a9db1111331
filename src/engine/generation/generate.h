// Text out of a saved model: prompt in, sampled tokens after it.
#pragma once

#include "engine/generation/sampler.h"
#include "spec/config/run_choices.h"

#include <filesystem>
#include <functional>
#include <string>

namespace echelon {

struct GenerateOptions {
  std::filesystem::path model;  // a Hugging Face folder with tokenizer.json
  std::string prompt;           // empty: the model starts with the token between documents
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling;
  DeviceChoice device = DeviceChoice::automatic;
  std::function<void(std::string_view text)> on_text;  // each token's bytes as they come; may be empty
};

struct Generation {
  std::string text;  // without the prompt
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_new_tokens = 0;
  std::string device;  // what computed it
  std::string note;    // ModelReader::unused_tensors_note()
};

/// Ends early at the token between documents, and where the model has no more positions. Throws Error if the model or
/// its tokenizer cannot be read, or the prompt leaves no room in the model's positions, or there is no such device.
[[nodiscard]] Generation generate(const GenerateOptions& options);

}  // namespace echelon
