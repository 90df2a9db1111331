// Tokens by a formula, for steps whose time does not depend on them.
#pragma once

#include "data/batch_source.h"

#include <cstdint>

namespace echelon {

class SomeTokens : public BatchSource {
 public:
  explicit SomeTokens(std::int64_t vocab_size) : vocab_size_(vocab_size) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    const auto token = [&](std::int64_t i) {
      return static_cast<std::int32_t>((sequence * 7 + i * i * 3 + i) % vocab_size_);
    };
    for (std::int64_t i = 0; i < seq_len; ++i) {
      tokens[i] = token(i);
      targets[i] = token(i + 1);
    }
  }

 private:
  std::int64_t vocab_size_;
};

}  // namespace echelon
