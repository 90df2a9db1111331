// Renders chat templates: the part of Jinja that they use, as transformers sets it up, in bounded time and memory.
#pragma once

#include "data/template/value.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace echelon::jinja {

struct Template;

/// A template is foreign code.
struct RenderLimits {
  std::int64_t num_steps = 1'000'000;
  std::int64_t num_bytes = 8 << 20;  // of all strings that it makes; one takes up to six times as much memory
};

struct Rendered {
  Text text;
  std::vector<std::pair<std::size_t, std::size_t>> generations;  // [start, end) in bytes of {% generation %}
};

class ChatTemplate {
 public:
  /// Throws Error with line and column.
  explicit ChatTemplate(std::string_view source);
  /// Throws Error with line and column, also if a limit is reached.
  [[nodiscard]] Rendered render(const Map& variables, const RenderLimits& limits = {}) const;

 private:
  std::shared_ptr<const Template> template_;
};

/// Every byte of its strings is of `origin`.
[[nodiscard]] Value value_of(const nlohmann::ordered_json& json, char32_t origin = 1);

/// Of foreign JSON, in time and memory in proportion to it. Throws Error if it is not JSON in UTF-8, with the place; or
/// if it is nested too deep, or has more lists and objects than values.
[[nodiscard]] nlohmann::ordered_json parse_bounded(std::string_view text);

}  // namespace echelon::jinja
