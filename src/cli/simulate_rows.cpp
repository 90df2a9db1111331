#include "cli/simulate_rows.h"

#include "base/text/printable.h"
#include "base/units.h"
#include "cli/documents/asked_documents.h"
#include "predict/published/promise.h"
#include "predict/published/published_row.h"
#include "predict/published/row_assumptions.h"
#include "predict/published/software_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> read_constants(const std::string& path) {
  if (path.empty()) return {Json::object()};
  std::ifstream file(path);
  require(file.good(), "--constants = '{}' cannot be read; check the path", path);
  return Json::parse(file).get<std::vector<Json>>();
}

SoftwareProfile with_constants(SoftwareProfile profile, const Json& constants) {
  if (constants.empty()) return profile;
  Calibration calibration = calibration_of(profile);
  for (const auto& [name, value] : constants.items()) {
    double* field = constant(calibration, name);
    if (name == "logit_bytes") field = &profile.logit_bytes;
    if (name == "optimizer_bytes") field = &profile.optimizer_bytes;
    if (name == "fp8_speedup") field = &profile.fp8_speedup;
    if (name == "slowdown_by_collectives") field = &profile.overlap.slowdown_by_collectives;
    require(field != nullptr, "--constants: there is no constant '{}'", name);
    *field = value.get<double>();
  }
  profile.calibration = calibration;
  return profile;
}

/// What a row of packed data attends to: its column `documents` ("2000:4000"), else what is said of all rows.
std::optional<DocumentLoad> load_of(const CsvRow& row, const RowsArguments& arguments, RunConfig& config) {
  const std::string own = row.at("documents"), &text = own.empty() ? arguments.documents : own;
  if (!text.empty()) config.data.reset_attention_mask = true;
  return asked_load(text, config);
}

Json predict(const CsvRow& row, const RowsArguments& arguments, const std::vector<Json>& constants) {
  Json json = {{"id", row.at("id")}};
  try {
    DescribedRun run = described_run(row);
    if (!arguments.profile.empty()) run.profile = software_profile(arguments.profile);
    if (const auto assumed = assumptions_of(row, run); !assumed.empty()) json["assumed"] = assumed;
    const std::optional<DocumentLoad> documents = load_of(row, arguments, run.config);
    if (documents) run.profile = with_documents(run.profile, *documents);
    const Blueprint blueprint(run.config);
    std::vector<double> seconds;
    for (const Json& each : constants) {
      const SoftwareProfile profile = with_constants(run.profile, each);
      if (!seconds.empty() || constants.size() > 1) {
        seconds.push_back(simulate(blueprint, calibrated(profile, run.machine), {.profile = profile}).step_seconds);
        continue;
      }
      const Simulation result = simulate_software(blueprint, run.machine, {.profile = profile});
      json.update({{"predicted_seconds", result.step_seconds},
                   {"predicted_memory_bytes", result.peak_memory_bytes()},
                   {"mfu", 100 * result.mfu()},
                   {"fits", result.fits()}});
      json.update(promise_json(result, run.config, run.machine, run.profile));
    }
    if (seconds.size() > 1) json["seconds"] = seconds;
    if (documents) json["documents"] = to_json(*documents, context_bytes(blueprint, *documents, run.profile));
    json.update({{"profile", run.profile.name}, {"machine", run.machine.name}});
  } catch (const std::exception& error) {
    json["error"] = error.what();
  }
  return json;
}

/// Throws Error if a row was not predicted, after all have been printed.
void require_predicted(const std::vector<Json>& rows, const std::string& path) {
  const auto is_wrong = [](const Json& row) { return row.contains("error"); };
  const auto first = std::ranges::find_if(rows, is_wrong);
  require(first == rows.end(), "--rows={}: {} of {} rows cannot be predicted; the first has id '{}': {}", path,
          std::ranges::count_if(rows, is_wrong), rows.size(),
          first == rows.end() ? "" : first->at("id").get<std::string>(),
          first == rows.end() ? "" : first->at("error").get<std::string>());
}

/// " (2.1 to 2.7)"; empty where there is no interval.
std::string interval_text(const Json& row) {
  if (!row.contains("interval_seconds")) return "";
  const Json& range = row["interval_seconds"];
  return fmt::format(" ({:.2f} to {:.2f})", range[0].get<double>(), range[1].get<double>());
}

std::string documents_line(const Json& documents) {
  const auto number = [&](const char* field) { return documents[field].get<double>(); };
  std::string text =
      fmt::format("  documents leave {:.2f} % of the pairs of whole sequences", 100 * number("pairs_share"));
  if (number("planned_cp_bytes") > 0)
    text += fmt::format(", and context parallelism sends {:.3f} GiB of {:.3f} a step", number("cp_bytes") / gib,
                        number("planned_cp_bytes") / gib);
  return text;
}

}  // namespace

ExitStatus simulate_rows(const RowsArguments& arguments) {
  // A wrong name is an error of the caller, not of each row.
  if (!arguments.profile.empty()) (void)software_profile(arguments.profile);
  require_documents(arguments.documents);
  const std::vector<CsvRow> rows = read_csv(arguments.path, needed_columns);
  require(!rows.empty(), "--rows={} has the names of columns and no run below them", arguments.path);
  const std::vector<Json> constants = read_constants(arguments.constants);
  Json all = Json::array();
  for (const CsvRow& row : rows) all.push_back(predict(row, arguments, constants));
  if (arguments.json) {
    // ids may be any bytes, even invalid UTF-8
    fmt::print("{}\n", all.dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
    require_predicted(all, arguments.path);
    return ExitStatus::success;
  }
  for (const Json& each : all) {
    if (each.contains("error"))
      fmt::print("{:<40} {}\n", printable(each["id"].get<std::string>()), printable(each["error"].get<std::string>()));
    else
      fmt::print("{:<40} {:>12.4f} s{} {:>8.2f} GiB{}\n", printable(each["id"].get<std::string>()),
                 each["predicted_seconds"].get<double>(), interval_text(each),
                 each["predicted_memory_bytes"].get<double>() / gib, each["fits"].get<bool>() ? "" : " (does not fit)");
    if (each.contains("documents")) fmt::print("{}\n", documents_line(each["documents"]));
    for (const Json& sentence : each.value("assumed", Json::array()))
      fmt::print("  {}\n", printable(sentence.get<std::string>()));
  }
  std::fflush(stdout);
  require_predicted(all, arguments.path);
  return ExitStatus::success;
}

}  // namespace echelon
