// The options of `echelon draw` for the ring of context parallelism, and what they draw.
#pragma once

#include "pages/ring/ring_picture.h"

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
}  // namespace CLI

namespace echelon {

struct DrawRingArguments {
  int cp = 0;  // 0: a schedule is drawn
  std::int64_t seq_len = 32;
  std::string balancer = "headtail";
  std::string documents;  // tokens of each: "9,7"; empty: one document
};

/// `arguments` outlives the app.
void add_ring_options(CLI::App& app, DrawRingArguments& arguments);

/// Throws Error with the option, its value and a valid one.
[[nodiscard]] RingPicture drawn_ring(const DrawRingArguments& arguments);

}  // namespace echelon
