// The options of `echelon draw` for context parallelism, and what they draw.
#pragma once

#include "pages/context_parallel/context_picture.h"

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
}  // namespace CLI

namespace echelon {

struct DrawContextArguments {
  int cp = 0;  // 0: a schedule is drawn
  std::int64_t seq_len = 32;
  std::string balancer = "headtail", method = "ring";
  std::string documents;  // tokens of each: "9,7"; empty: one document
  std::int64_t num_heads = 8, num_kv_heads = 0, ulysses_degree = 0;
};

/// `arguments` outlives the app.
void add_context_options(CLI::App& app, DrawContextArguments& arguments);

/// Throws Error with the option, its value and a valid one.
[[nodiscard]] ContextPicture drawn_context(const DrawContextArguments& arguments);

}  // namespace echelon
