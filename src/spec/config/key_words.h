// What a user may have meant by a name that is no key: the field's words first, letters after.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace echelon {

/// A word of other trainers and of papers, such as "tp" or "gradient_checkpointing".
struct FieldWord {
  std::string_view word;
  std::string_view meaning;   // "training.steps", "training.dtype=bfloat16", or an option of a command: "gpus"
  std::string_view not_here;  // what is not supported, as a sentence, where there is no meaning
};
[[nodiscard]] std::span<const FieldWord> field_words();

/// By the last part of a name, in any letter case, with dashes or underscores, up to an "=". Null if there is none.
[[nodiscard]] const FieldWord* find_field_word(std::string_view name);

/// The key that is meant, perhaps with a value: by a word, by its last part, or by its letters. Empty if none is.
[[nodiscard]] std::string suggested_key(std::string_view name);

/// The end of a sentence about an unknown name: "; did you mean optimizer.lr?", "; resuming is not supported yet", or
/// where the keys are listed.
[[nodiscard]] std::string hint_for_key(std::string_view name);

}  // namespace echelon
