// Models of images and text around a language model of a family, which config.json describes as "text_config".
#pragma once

#include "checkpoint/hf/config/config_fields.h"

namespace echelon {

[[nodiscard]] bool wraps_language_model(const ConfigFields& config);

/// The fields of the language model with its model_type, and with tie_word_embeddings where the wrapper says it; of
/// another config all fields. Throws Error if the wrapper has another language model than its own kinds.
[[nodiscard]] ConfigFields language_model_of(const ConfigFields& config);

}  // namespace echelon
