#include "checkpoint/hf/wrapped_weights.h"

#include "checkpoint/hf/config/wrapper_config.h"
#include "files/file.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr std::string_view outer = "language_model.", base = "model.", inner = "model.language_model.",
                           head = "lm_head.";

}  // namespace

LanguageModelNames::LanguageModelNames(const std::filesystem::path& folder, const WeightFolder& weights) {
  if (!wraps_language_model(ConfigFields(folder / "config.json"))) return;
  const bool has_inner =
      std::ranges::any_of(weights.entries(), [](const auto& entry) { return entry.first.starts_with(inner); });
  kind_ = has_inner ? Kind::inner_prefix : Kind::outer_prefix;
}

LanguageModelNames LanguageModelNames::of_modules(const std::filesystem::path& folder) {
  LanguageModelNames names;
  if (!folder.empty() && wraps_language_model(ConfigFields(folder / "config.json"))) names.kind_ = Kind::inner_prefix;
  return names;
}

LanguageModelNames LanguageModelNames::of(const std::vector<std::string>& names) {
  const auto has = [&](std::string_view start) {
    return std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(start); });
  };
  LanguageModelNames found;
  if (has(inner)) found.kind_ = Kind::inner_prefix;
  if (has(outer)) found.kind_ = Kind::outer_prefix;
  return found;
}

std::string LanguageModelNames::in_file(std::string_view tensor) const {
  switch (kind_) {
    case Kind::own: break;
    case Kind::outer_prefix: return fmt::format("{}{}", outer, tensor);
    case Kind::inner_prefix:
      if (tensor.starts_with(base)) return fmt::format("{}{}", inner, tensor.substr(base.size()));
  }
  return std::string(tensor);
}

bool LanguageModelNames::are_of(std::string_view name) const {
  switch (kind_) {
    case Kind::own: break;
    case Kind::outer_prefix: return name.starts_with(outer);
    case Kind::inner_prefix: return name.starts_with(inner) || name.starts_with(head);
  }
  return true;
}

std::string unwrapped(std::string_view module) {
  if (module.starts_with(inner)) module.remove_prefix(base.size());
  if (!module.starts_with(outer)) return std::string(module);
  module.remove_prefix(outer.size());
  const bool is_whole = module.starts_with(base) || module == head.substr(0, head.size() - 1);
  return is_whole ? std::string(module) : fmt::format("{}{}", base, module);
}

void untie_if_has_head(const LanguageModelNames& names, const WeightFolder& weights, ModelSpec& model) {
  if (names.are_wrapped() && weights.find(names.in_file("lm_head.weight")) != nullptr)
    model.tie_word_embeddings = false;
}

WrappedWeights wrapped_weights_of(const std::filesystem::path& folder) {
  if (folder.empty() || !wraps_language_model(ConfigFields(folder / "config.json"))) return {};
  const WeightFolder weights(folder);
  WrappedWeights wrapped = {.folder = folder, .names = LanguageModelNames(folder, weights), .others = {}};
  for (const auto& [name, entry] : weights.entries())
    if (!wrapped.names.are_of(name)) wrapped.others[name] = entry;
  return wrapped;
}

void copy_tensor(const std::filesystem::path& folder, const WeightFolder::Entry& from, File& file,
                 const FileTensor& to) {
  constexpr std::int64_t most = 1 << 22;
  const File source = File::open_in_folder(folder, from.path.filename().string());
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(most, to.num_bytes)));
  for (std::int64_t done = 0; done < to.num_bytes; done += most) {
    const std::int64_t count = std::min(most, to.num_bytes - done);
    source.read_at(from.tensor.first_byte + done, bytes.data(), count);
    file.write_at(to.first_byte + done, bytes.data(), count);
  }
}

}  // namespace echelon
