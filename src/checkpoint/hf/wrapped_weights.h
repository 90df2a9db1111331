// The weights of a model of images and text around a language model. Files have one of two names for those of the
// language model: language_model.model.NAME and language_model.lm_head.NAME, or model.language_model.NAME and
// lm_head.NAME. The second ones are those of transformers' modules, whatever the files have.
#pragma once

#include "checkpoint/hf/weight_folder.h"
#include "spec/model_spec.h"

#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// How a folder names the tensors of its language model; without a wrapper as its family does.
class LanguageModelNames {
 public:
  LanguageModelNames() = default;
  LanguageModelNames(const std::filesystem::path& folder, const WeightFolder& weights);
  /// Those of the modules that transformers makes of the folder, which may be empty: no wrapper.
  [[nodiscard]] static LanguageModelNames of_modules(const std::filesystem::path& folder);
  /// Those that some modules or tensors have.
  [[nodiscard]] static LanguageModelNames of(const std::vector<std::string>& names);

  [[nodiscard]] bool are_wrapped() const { return kind_ != Kind::own; }
  [[nodiscard]] std::string in_file(std::string_view tensor) const;
  /// Whether a tensor of the file is of the language model.
  [[nodiscard]] bool are_of(std::string_view name_in_file) const;
  bool operator==(const LanguageModelNames&) const = default;

 private:
  enum class Kind : std::uint8_t { own, outer_prefix, inner_prefix };
  Kind kind_ = Kind::own;
};

/// The family's name of a module, which may have any name of one in a wrapper, or its end from language_model on.
[[nodiscard]] std::string unwrapped(std::string_view module);

/// transformers 5 does not tie a head that the files have, whatever the wrapper's config.json says.
void untie_if_has_head(const LanguageModelNames& names, const WeightFolder& weights, ModelSpec& model);

/// What a written folder has of the folder that wraps its language model.
struct WrappedWeights {
  std::filesystem::path folder;
  LanguageModelNames names;
  std::map<std::string, WeightFolder::Entry, std::less<>> others;  // than those of the language model
};

/// Nothing if the folder is empty or no wrapper. Throws Error.
[[nodiscard]] WrappedWeights wrapped_weights_of(const std::filesystem::path& folder);

/// Copies the bytes of a tensor. Throws Error, Failure.
void copy_tensor(const std::filesystem::path& folder, const WeightFolder::Entry& from, File& file,
                 const FileTensor& to);

}  // namespace echelon
