// What a template may still use.
#pragma once

#include "base/error.h"
#include "data/template/chat_template.h"

namespace echelon::jinja {

class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : limits_(limits), steps_(limits.num_steps), bytes_(limits.num_bytes) {}

  void step(std::int64_t count = 1) {
    steps_ -= count;
    require(steps_ >= 0, "the template takes more than {} steps", limits_.num_steps);
  }
  /// Before a string of this size is made.
  void grow(std::size_t size) {
    require(size <= static_cast<std::size_t>(bytes_), "the template makes more than {} bytes of text",
            limits_.num_bytes);
    bytes_ -= static_cast<std::int64_t>(size);
  }
  void append(Text& text, const Text& part) {
    grow(part.bytes.size());
    text.append(part);
  }

 private:
  RenderLimits limits_;
  std::int64_t steps_, bytes_;
};

}  // namespace echelon::jinja
