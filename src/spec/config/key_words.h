// Suggestions for unknown keys: first by the field's terms, then by spelling.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace echelon {

/// A term of other trainers and of papers, such as "tp" or "gradient_checkpointing".
struct FieldWord {
  std::string_view word;
  std::string_view meaning;   // "training.steps", "training.dtype=bfloat16", or an option of a command: "gpus"
  std::string_view not_here;  // a sentence on what is not supported, if no key has the meaning
};
[[nodiscard]] std::span<const FieldWord> field_words();

/// Finds a word by the last part of a name up to "=", case-insensitive, with dashes or underscores. Null if there is
/// none.
[[nodiscard]] const FieldWord* find_field_word(std::string_view name);

/// The intended key, perhaps with a value: by a known term, by its last part, or by spelling. Empty if none.
[[nodiscard]] std::string suggested_key(std::string_view name);

/// The end of a sentence about an unknown name: "; did you mean optimizer.lr?", "; resuming is not supported yet", or a
/// pointer to the list of keys.
[[nodiscard]] std::string hint_for_key(std::string_view name);

}  // namespace echelon
