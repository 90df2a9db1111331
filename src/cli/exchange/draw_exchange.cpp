#include "cli/exchange/draw_exchange.h"

#include "cli/arguments.h"

#include <CLI/CLI.hpp>

namespace echelon {

void add_exchange_options(CLI::App& app, ExchangeRequest& request) {
  constexpr int most_ranks = 256;
  auto* const ranks = app.add_option("--expert-parallel", request.num_ranks,
                                     "ranks of experts, instead of a schedule: their exchange and what hides it")
                          ->check(in_range(2, most_ranks));
  const auto add = [&](const char* name, double& value, std::pair<double, double> range, const char* help) {
    app.add_option(name, value, help)->check(in_range(range.first, range.second))->capture_default_str()->needs(ranks);
  };
  add("--dispatch-bound", request.dispatch_bound, {0.01, 1e6}, "moe.dispatch_bound");
  add("--experts-ms", request.experts_ms, {0, 1e9}, "of experts in forward, even loads");
  add("--shared-ms", request.shared_ms, {0, 1e9}, "of the shared expert; 0: none");
  add("--exchange-ms", request.exchange_ms, {0, 1e9}, "of all rows, one way");
  app.add_option("--expert-load", request.load, "balanced or zipf:S")
      ->type_name("LOAD")
      ->capture_default_str()
      ->needs(ranks);
  for (const char* const name : schedule_options) ranks->excludes(app.get_option(name));
  ranks->excludes(app.get_option("--context-parallel"));
}

}  // namespace echelon
