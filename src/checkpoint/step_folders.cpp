#include "checkpoint/step_folders.h"

#include "base/error.h"
#include "checkpoint/folder_swap.h"
#include "checkpoint/safetensors/file_io.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

namespace echelon {
namespace {

constexpr std::string_view prefix = "step-";

struct StepName {
  std::int64_t step;
  std::string_view rest;  // text after the number: empty for a complete folder
};

std::optional<StepName> parse(std::string_view name) {
  if (!name.starts_with(prefix)) return {};
  StepName parsed{};
  const char* end = name.data() + name.size();
  const auto [next, error] = std::from_chars(name.data() + prefix.size(), end, parsed.step);
  if (error != std::errc() || parsed.step < 0) return {};
  parsed.rest = {next, static_cast<std::size_t>(end - next)};
  return parsed;
}

template <class Visit>
void for_each_folder(const std::filesystem::path& base, Visit&& visit) {
  std::error_code error;
  std::vector<std::string> names;  // collected first, since visits delete
  for (const auto& entry : std::filesystem::directory_iterator(base, error))
    if (entry.is_directory(error) && !entry.is_symlink(error)) names.push_back(entry.path().filename().string());
  for (const std::string& name : names)
    if (const auto parsed = parse(name);
        parsed && (parsed->rest.empty() || parsed->rest == ".tmp" || parsed->rest == ".old"))
      visit(*parsed, base / name);
}

}  // namespace

std::filesystem::path step_folder(const std::filesystem::path& base, std::int64_t step) {
  return base / fmt::format("{}{}", prefix, step);
}

std::vector<std::int64_t> saved_steps(const std::filesystem::path& base) {
  std::vector<std::int64_t> steps;
  for_each_folder(base, [&](const StepName& name, const std::filesystem::path& folder) {
    // "step-007" is not written by us.
    if (name.rest.empty() && folder == step_folder(base, name.step)) steps.push_back(name.step);
  });
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::int64_t> latest_step(const std::filesystem::path& base) {
  const auto steps = saved_steps(base);
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

void prune_steps(const std::filesystem::path& base, std::int64_t step, std::int64_t keep_latest_k) {
  for_each_folder(base, [&](const StepName& name, const std::filesystem::path& folder) {
    if (!name.rest.empty()) delete_folder(folder);
  });
  if (keep_latest_k <= 0) return;
  auto steps = saved_steps(base);
  std::erase_if(steps, [&](std::int64_t saved) { return saved > step || !is_model_folder(step_folder(base, saved)); });
  const auto num_steps = static_cast<std::int64_t>(steps.size());
  for (std::int64_t i = 0; i < num_steps - keep_latest_k; ++i) {
    const std::filesystem::path folder = step_folder(base, steps[static_cast<std::size_t>(i)]);
    std::error_code error;
    // first, so that a half-deleted folder never looks whole.
    std::filesystem::rename(folder, outgoing_name(folder), error);
    if (error) throw Failure(fmt::format("{}: {}", folder.string(), error.message()));
    delete_folder(outgoing_name(folder));
  }
}

}  // namespace echelon
