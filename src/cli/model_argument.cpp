#include "cli/model_argument.h"

#include "base/error.h"
#include "base/text/similar.h"
#include "checkpoint/model_reader.h"

#include <algorithm>
#include <filesystem>

namespace echelon {

namespace fs = std::filesystem;

bool is_preset(const std::string& model) {
  const std::vector<std::string_view> names = preset_names();
  std::error_code ignored;
  return std::find(names.begin(), names.end(), model) != names.end() && !fs::exists(model, ignored);
}

std::string hint_for_preset(const std::string& model) {
  const std::string closest = similar(model, preset_names());
  return closest.empty() ? "" : fmt::format("; did you mean the preset {}?", closest);
}

ConfigSource source_of_model(const std::string& model, std::vector<std::string> settings) {
  ConfigSource source = {.path = {}, .arguments = std::move(settings), .read_model = read_model_spec};
  std::error_code ignored;
  const bool looks_like_a_file = model.find('.') != std::string::npos || model.find('/') != std::string::npos;
  if (fs::is_directory(model, ignored))
    source.model_path = model;
  else if (is_preset(model) || (!model.empty() && !looks_like_a_file && !fs::exists(model, ignored)))
    source.arguments.insert(source.arguments.begin(), "--model.preset=" + model);
  else
    source.path = model;
  return source;
}

}  // namespace echelon
