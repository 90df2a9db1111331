#include "checkpoint/hf/config/wrapper_config.h"

#include <algorithm>

namespace echelon {
namespace {

struct Wrapper {
  std::string_view model_type;
  std::vector<std::string_view> languages;  // model types of the language model; the first is the default
};

const Wrapper* find_wrapper(const ConfigFields& config) {
  static const std::vector<Wrapper> wrappers = {{"gemma3", {"gemma3_text"}}, {"mistral3", {"mistral", "ministral3"}}};
  const auto found = std::ranges::find(wrappers, config.text("model_type"), &Wrapper::model_type);
  return found == wrappers.end() ? nullptr : &*found;
}

}  // namespace

bool wraps_language_model(const ConfigFields& config) { return find_wrapper(config) != nullptr; }

ConfigFields language_model_of(const ConfigFields& config) {
  const Wrapper* wrapper = find_wrapper(config);
  if (wrapper == nullptr) return config;
  ConfigFields language = config.object("text_config");
  const std::string model_type = language.text("model_type", std::string(wrapper->languages.front()));
  if (language.has("model_type")) language.require_one_of("model_type", model_type, wrapper->languages);
  language.set("model_type", model_type);
  // transformers 5 reads the wrapper's, 4.57 that of the language model.
  constexpr const char* tied = "tie_word_embeddings";
  if (config.has(tied)) language.set(tied, config.boolean(tied, false));
  return language;
}

}  // namespace echelon
