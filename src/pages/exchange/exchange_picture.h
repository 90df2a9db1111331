// One layer of a mixture with experts over ranks: what a rank computes in its passes, and the exchange of rows next to
// it. As text, SVG, trace and HTML.
//
// The order is that of the layer's own code, from the blueprint's trace; only the times are given. Computing and
// exchanging are two lanes, as in predict/step/action_cost.h.
#pragma once

#include "report/html/html_report.h"
#include "spec/config/expert_load.h"

#include <cstdint>
#include <string>
#include <vector>

namespace echelon {

struct ExchangeRequest {
  int num_ranks = 0;  // that have all experts together
  double dispatch_bound = 1.2;
  std::string load = "balanced";
  // Milliseconds of a forward with even loads: of the experts, of the shared expert (0: there is none), and of all rows
  // of a rank one way.
  double experts_ms = 4, shared_ms = 1, exchange_ms = 1;
};

/// Times are milliseconds.
struct ExchangePicture {
  struct Bar {
    std::string name = {};  // "experts", "shared", "dispatch", "combine"
    double start = 0, end = 0;
  };
  struct Pass {
    std::string name = {};  // "forward", "backward"
    std::vector<Bar> computed = {}, exchanged = {};
    double end = 0;
    /// While rows are under way; and of it, while nothing is computed.
    [[nodiscard]] double exchange_ms() const;
    [[nodiscard]] double exposed_ms() const;
  };
  ExchangeRequest request = {};
  int num_rounds = 1;
  std::vector<Pass> passes = {};
};

/// From the first row that leaves to the last that is back, on the most loaded rank. Throws Error on a load that
/// read_expert_load refuses.
[[nodiscard]] ExchangePicture exchange_picture(const ExchangeRequest& request);

/// Bars are stretched with '=' to their time, of which the longer pass has `max_columns`.
[[nodiscard]] std::string to_text(const ExchangePicture& picture, int max_columns);
[[nodiscard]] std::string to_svg(const ExchangePicture& picture);
/// A process per pass, a thread per lane.
[[nodiscard]] std::string to_chrome_json(const ExchangePicture& picture);
[[nodiscard]] HtmlReport exchange_page(const ExchangePicture& picture);

}  // namespace echelon
