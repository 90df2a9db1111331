// Text out of a saved model: prompt in, sampled tokens after it.
#pragma once

#include "data/tokenizer/tokenizer.h"
#include "engine/generation/sampler.h"
#include "spec/config/run_config.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct GenerateOptions {
  std::filesystem::path model;              // a Hugging Face folder or a checkpoint
  std::string prompt;                       // empty: the model starts with the token between documents
  std::vector<std::int32_t> stop_tokens{};  // as well as those of the folder
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling;
  DeviceChoice device = DeviceChoice::automatic;
  int expert_parallel = 1;  // ranks with some experts each, threads or processes of a launcher
  double timeout_seconds = CommConfig().timeout_seconds;  // of one wait of a rank, also for the next prompt
  // Each token's bytes as they come, in the process of rank 0; may be empty.
  std::function<void(std::string_view text)> on_text;
};

struct Generation {
  std::string text;                  // without the prompt
  std::vector<std::int32_t> tokens;  // of the text
  bool is_ended = false;             // by a stop token
  std::int64_t num_prompt_tokens = 0;
  std::string device;  // what computed it
  std::string note;    // ModelReader::note(), and that no row is dropped
};

/// Ends early at a stop token, the token between documents or an eos_token_id of generation_config.json, and where the
/// model has no more positions. Throws Error if the model or its tokenizer cannot be read, or the prompt leaves no room
/// in the model's positions, or there is no such device, or the model has no experts that so many ranks divide. None in
/// a process without rank 0.
[[nodiscard]] std::optional<Generation> generate(const GenerateOptions& options);

/// The next text to continue; none ends the conversation.
using NextPrompt = std::function<std::optional<std::vector<std::int32_t>>()>;

/// As generate, for one prompt after another, with the tokenizer of the model and one model in memory: it is read again
/// only if a prompt needs more room than those before. Rank 0 asks for prompts, and hears the answers.
void generate_each(const GenerateOptions& options, const Tokenizer& tokenizer, const NextPrompt& next,
                   const std::function<void(const Generation&)>& answered);

}  // namespace echelon
