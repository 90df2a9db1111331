#include "train/start/load_choice.h"

#include "checkpoint/state/step_folders.h"
#include "files/file.h"
#include "train/save/state_saver.h"

#include <algorithm>
#include <charconv>

namespace echelon {
namespace {

std::optional<std::int64_t> parse_step(std::string_view text) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  return error == std::errc() && end == text.data() + text.size() && step >= 0 ? std::optional(step) : std::nullopt;
}

/// The N of a path to the run's own step-N.
std::optional<std::int64_t> own_step(const std::filesystem::path& base, const std::string& path) {
  const std::filesystem::path folder = resolved(path);
  if (folder.parent_path() != resolved(base)) return {};
  constexpr std::string_view prefix = "step-";
  const std::string name = folder.filename().string();
  return name.starts_with(prefix) ? parse_step(std::string_view(name).substr(prefix.size())) : std::nullopt;
}

}  // namespace

LoadChoice load_choice(const RunConfig& config) {
  const std::string& load = config.checkpoint.load;
  if (std::ranges::find(load_words, load) != std::end(load_words)) return {};
  if (const auto step = parse_step(load)) return {.step = step};
  if (const auto step = own_step(checkpoint_folder(config), load)) return {.step = step};
  return {.other_run = load};
}

std::filesystem::path first_to_load(const RunConfig& config) {
  const std::filesystem::path base = checkpoint_folder(config);
  const std::vector<SavedStep> saved = saved_steps(base);
  const LoadChoice choice = load_choice(config);
  if (choice.step && std::ranges::find(saved, *choice.step, &SavedStep::step) != saved.end())
    return step_folder(base, *choice.step);
  if (!saved.empty()) return step_folder(base, saved.back().step);
  return choice.other_run && is_folder(*choice.other_run) ? *choice.other_run : std::filesystem::path();
}

}  // namespace echelon
