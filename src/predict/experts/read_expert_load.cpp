#include "predict/experts/read_expert_load.h"

#include "base/error.h"
#include "base/text_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;
using Loads = std::vector<std::vector<double>>;

constexpr std::string_view zipf_word = "zipf:";
constexpr double most_zipf = 10;

double zipf_of(const std::string& text) {
  const std::string_view digits = std::string_view(text).substr(zipf_word.size());
  double zipf = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), zipf);
  require(error == std::errc() && end == digits.data() + digits.size() && zipf >= 0 && zipf <= most_zipf,
          "--expert-load={} has no exponent from 0 to {} (use --expert-load=zipf:1.2)", text, most_zipf);
  return zipf;
}

/// moe.loads of the last line that has it.
Json last_loads(const std::string& path, std::string_view lines) {
  Json found;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    if (lines.substr(0, end).find("\"loads\"") != std::string_view::npos) {
      const Json line = Json::parse(lines.substr(0, end), nullptr, false);
      const auto moe = line.is_object() ? line.find("moe") : line.end();
      if (line.is_object() && moe != line.end() && moe->is_object() && moe->contains("loads")) found = moe->at("loads");
    }
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  require(!found.is_null(),
          "--expert-load={} has no line with the loads of experts (train with --metrics.expert_loads=true)", path);
  return found;
}

bool is_row(const Json& row, std::int64_t num_experts) {
  return row.is_array() && std::ssize(row) == num_experts && std::ranges::all_of(row, [](const Json& each) {
           return each.is_number() && each.get<double>() >= 0 && std::isfinite(each.get<double>());
         });
}

Loads read_loads(const std::string& path, const ModelSpec& model) {
  const auto text = read_text_file(path);
  require(text.has_value(),
          "--expert-load={} is neither balanced nor zipf:S nor a file that can be read (use balanced)", path);
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_array()) json = last_loads(path, *text);
  const std::int64_t layers = model.mixture.num_layers_of(model.num_hidden_layers), experts = model.mixture.num_experts;
  require(json.is_array() && std::ssize(json) == layers,
          "--expert-load={} has {} layers with experts, but the model has {} (use the file of a run of this model)",
          path, json.is_array() ? json.size() : 0, layers);
  Loads loads;
  for (const Json& row : json) {
    require(is_row(row, experts),
            "--expert-load={} has no loads of {} experts in its layer {} with experts (use the file of a run of this "
            "model)",
            path, experts, loads.size());
    loads.push_back(row.get<std::vector<double>>());
    require(std::ranges::any_of(loads.back(), [](double rows) { return rows > 0; }),
            "--expert-load={} has no row in its layer {} with experts (use balanced)", path, loads.size() - 1);
  }
  return loads;
}

}  // namespace

ExpertLoad read_expert_load(const std::string& text, const RunConfig& config) {
  if (text.empty()) return {};
  const ModelSpec& model = config.model;
  require(model.has_experts(), "--expert-load={} is for mixtures of experts, and the model has no experts; omit it",
          text);
  ExpertLoad load;
  load.name = text;
  if (text == ExpertLoad().name) return load;
  if (text.starts_with(zipf_word))
    load.zipf = zipf_of(text);
  else
    load.rows_of_layers = read_loads(text, model);
  return load;
}

std::string expert_load_text(const RunConfig& config) {
  const std::vector<double> kept = kept_shares_of_ranks(config);
  const double dropped = kept.empty() ? 0 : 1 - std::accumulate(kept.begin(), kept.end(), 0.0);
  const std::string drops = kept.empty() ? "" : fmt::format("; {:.1f} % of rows are dropped", 100 * dropped);
  if (config.expert_load.is_balanced() && kept.empty()) return "";
  const auto ep = static_cast<int>(config.parallelism.expert_parallel_degree);
  if (ep == 1) return fmt::format("experts {}: each rank has rows of all experts{}\n", config.expert_load.name, drops);
  const MixtureSpec& mixture = config.model.mixture;
  const double most = kept.empty() ? shares_of_ranks(config.expert_load, mixture, ep).front() : kept.front();
  const double over_mean = ep * most / (1 - dropped);
  const bool takes_one = capacity_factor_of(config) > 0;
  const double rounds = takes_one ? 1.0 : std::max(1.0, std::ceil(over_mean / config.moe.dispatch_bound));
  return fmt::format("experts {}: the most loaded of {} ranks computes {:.2f} times the mean, in {} round{}{}\n",
                     config.expert_load.name, ep, over_mean, rounds, rounds == 1 ? "" : "s", drops);
}

}  // namespace echelon
