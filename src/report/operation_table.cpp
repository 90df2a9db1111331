#include "report/operation_table.h"

#include "spec/machine/probe_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Rows = std::map<std::string, OperationRow>;

/// Lower bounds of an operation.
struct Floor {
  double multiply_add_seconds = 0, memory_seconds = 0;
};

Floor floor_of(const Span& span, const ComputeRates& rates) {
  const double flops_peak = rates.peak_flops(span.dtype).value_or(0), bandwidth = rates.memory_bandwidth();
  return {flops_peak > 0 ? static_cast<double>(span.flops) / flops_peak : 0,
          bandwidth > 0 ? static_cast<double>(span.bytes) / bandwidth : 0};
}

void add(OperationRow& row, const Span& span, const std::optional<Floor>& floor) {
  row.calls += 1;
  row.seconds += span.seconds();
  row.flops += static_cast<double>(span.flops);
  row.bytes += static_cast<double>(span.bytes);
  if (!floor) return;
  row.floor_seconds = row.floor_seconds.value_or(0) + std::max(floor->multiply_add_seconds, floor->memory_seconds);
  row.multiply_add_seconds += floor->multiply_add_seconds;
}

Span with_flops_done(Span span, double attention_share) {
  if (span.name == "attention" || span.name == "attention_backward")
    span.flops = std::llround(attention_share * static_cast<double>(span.flops));
  return span;
}

/// The seconds of an action outside of `inner`.
double own_seconds(const Span& action, const std::vector<Span>& spans) {
  double own = action.seconds();
  for (const Span& inner : spans) {
    const bool is_inside = inner.start >= action.start && inner.end <= action.end;
    if (is_inside && (inner.kind == SpanKind::operation || inner.kind == SpanKind::communication))
      own -= inner.seconds();
  }
  return std::max(0.0, own);
}

std::vector<OperationRow> sorted(const Rows& rows, double num_steps) {
  std::vector<OperationRow> list;
  for (const auto& [name, row] : rows) {
    OperationRow mean = row;
    mean.name = name;
    for (double* number : {&mean.calls, &mean.seconds, &mean.flops, &mean.bytes, &mean.multiply_add_seconds})
      *number /= num_steps;
    if (mean.floor_seconds) *mean.floor_seconds /= num_steps;
    list.push_back(mean);
  }
  std::sort(list.begin(), list.end(),
            [](const OperationRow& a, const OperationRow& b) { return a.seconds > b.seconds; });
  return list;
}

std::string percent(double part, double whole) { return whole > 0 ? fmt::format("{:.1f}", 100 * part / whole) : "N/A"; }

std::string line(const OperationRow& row, double step_seconds) {
  const std::string floor = row.floor_seconds ? fmt::format("{:.3f}", 1e3 * *row.floor_seconds) : "";
  const std::string reached = row.floor_seconds ? percent(*row.floor_seconds, row.seconds) : "";
  return fmt::format("{:<28}{:>8.0f}{:>12.3f}{:>8}{:>10.3f}{:>10.3f}{:>12}{:>9}\n", row.name, row.calls,
                     1e3 * row.seconds, percent(row.seconds, step_seconds), row.flops / 1e9, row.bytes / 1e9, floor,
                     reached);
}

nlohmann::ordered_json json_of(const OperationRow& row) {
  nlohmann::ordered_json json = {{"name", row.name},   {"calls", row.calls}, {"seconds", row.seconds},
                                 {"flops", row.flops}, {"bytes", row.bytes}, {"floor_seconds", nullptr}};
  if (row.floor_seconds) json["floor_seconds"] = *row.floor_seconds;
  return json;
}

}  // namespace

double OperationTable::floor_seconds() const {
  double sum = 0;
  for (const OperationRow& row : rows) sum += row.floor_seconds.value_or(0);
  return sum;
}

OperationTable operation_table(const std::vector<StepTrace>& steps, const Program& program, const ComputeRates& rates) {
  OperationTable table;
  table.num_steps = static_cast<std::int64_t>(steps.size());
  Rows rows;
  std::map<std::string, Rows> shapes;
  double all = 0;
  for (const StepTrace& step : steps) {
    all += step.end - step.start;
    for (const Span& span : step.spans) {
      if (span.kind == SpanKind::communication) add(rows[std::string(span.name)], span, std::nullopt);
      if (span.kind == SpanKind::operation) {
        const Span done = with_flops_done(span, step.attention_share);
        const Floor floor = floor_of(done, rates);
        add(rows[std::string(span.name)], done, floor);
        add(shapes[std::string(span.name)][fmt::format("{}x{}x{} {}", span.m, span.n, span.k, span.dtype)], done,
            floor);
      }
      if (span.kind == SpanKind::action &&
          program[static_cast<std::size_t>(span.action_id)].kind == ActionKind::load_batch) {
        Span reading = span;
        reading.end = reading.start + own_seconds(span, step.spans);
        add(rows["load_batch"], reading, std::nullopt);
      }
    }
  }
  const auto num_steps = static_cast<double>(steps.size());
  table.step_seconds = all / num_steps;
  table.rows = sorted(rows, num_steps);
  for (const auto& [name, by_shape] : shapes) table.by_shape[name] = sorted(by_shape, num_steps);
  table.unnamed_seconds = table.step_seconds;
  for (const OperationRow& row : table.rows) table.unnamed_seconds -= row.seconds;
  return table;
}

std::vector<std::string> probe_errors(const OperationTable& table) {
  std::vector<std::string> errors;
  double multiply_add_seconds = 0;
  for (const OperationRow& row : table.rows) {
    multiply_add_seconds += row.multiply_add_seconds;
    if (auto error = floor_error(row.name, row.multiply_add_seconds, row.seconds)) errors.push_back(*std::move(error));
  }
  if (auto error = floor_error("the step", multiply_add_seconds, table.step_seconds))
    errors.push_back(*std::move(error));
  else if (auto of_memory = memory_floor_error(table.floor_seconds(), table.step_seconds))
    errors.push_back(*std::move(of_memory));
  return errors;
}

std::string to_text(const OperationTable& table) {
  std::string text = fmt::format("{:<28}{:>8}{:>12}{:>8}{:>10}{:>10}{:>12}{:>9}\n", "operation", "calls", "ms",
                                 "% step", "Gflop", "GB", "floor ms", "floor %");
  for (const OperationRow& row : table.rows) text += line(row, table.step_seconds);
  text += line({.name = "unnamed", .seconds = table.unnamed_seconds}, table.step_seconds);
  text += fmt::format("step {:.3f} ms (mean of {}), floor {:.3f} ms = {} % of it; {} % of the step is named\n",
                      1e3 * table.step_seconds, table.num_steps, 1e3 * table.floor_seconds(),
                      percent(table.floor_seconds(), table.step_seconds), percent(table.named_fraction(), 1));
  return text;
}

std::string to_json(const OperationTable& table) {
  auto rows = nlohmann::ordered_json::array();
  for (const OperationRow& row : table.rows) {
    nlohmann::ordered_json json = json_of(row);
    if (const auto shapes = table.by_shape.find(row.name); shapes != table.by_shape.end()) {
      json["shapes"] = nlohmann::ordered_json::array();
      for (const OperationRow& shape : shapes->second) json["shapes"].push_back(json_of(shape));
    }
    rows.push_back(std::move(json));
  }
  return nlohmann::ordered_json{{"num_steps", table.num_steps},
                                {"step_seconds", table.step_seconds},
                                {"floor_seconds", table.floor_seconds()},
                                {"named_fraction", table.named_fraction()},
                                {"unnamed_seconds", table.unnamed_seconds},
                                {"probe_errors", probe_errors(table)},
                                {"rows", rows}}
      .dump();
}

}  // namespace echelon
