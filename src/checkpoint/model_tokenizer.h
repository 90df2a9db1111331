// Where the tokenizer of a saved model is.
#pragma once

#include "checkpoint/state/manifest.h"
#include "spec/config/run_config.h"

#include <filesystem>

namespace echelon {

/// The tokenizer.json of a model, next to which are the files that name its tokens and the chat template. It is the
/// folder's own. Of a checkpoint it is that of its run, else that of the Hugging Face folder from which the run
/// started. Adapters without one have that of their base. The name of what is missing if there is none. Throws Error if
/// it is a link to something outside of its folder.
[[nodiscard]] std::filesystem::path tokenizer_in(const std::filesystem::path& folder);

/// checkpoint.tokenizer of the run, if it is what the run had, else its copy in the checkpoint. Empty: the run had
/// none.
[[nodiscard]] std::filesystem::path tokenizer_of_run(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                                     const RunConfig& config);

}  // namespace echelon
