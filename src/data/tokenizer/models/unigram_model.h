// The most likely sequence of tokens (Kudo 2018, arXiv:1804.10959, section 3.2), by Viterbi's algorithm on bytes.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace echelon {

/// Thread-safe.
class UnigramModel {
 public:
  /// Throws Error, starting with `name`, if a score or the unknown token is missing.
  UnigramModel(const TokenizerSpec& spec, const std::string& name);

  /// Appends the ids of a piece. Without may_be_control, no token of it is a control token. Throws Error if a character
  /// has no token and there is none for unknown ones.
  void append(std::string_view piece, bool may_be_control, std::vector<std::int32_t>& ids) const;

 private:
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;  // by byte, ascending
    std::int32_t id = -1;
  };
  struct Step {
    double score = 0;
    std::int32_t id = -1;
    std::size_t begin = no_step;
  };
  static constexpr std::size_t no_step = static_cast<std::size_t>(-1);

  [[nodiscard]] double rounded(double sum) const;
  [[nodiscard]] std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
  void insert(std::string_view token, std::int32_t id);
  void relax(std::string_view piece, std::size_t begin, bool may_be_control, std::vector<Step>& best) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<double> scores_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::int32_t> control_;
  std::optional<std::int32_t> unknown_;
  double unknown_score_ = 0;
  bool has_float32_sums_ = false;
  std::array<std::int32_t, 256> byte_ids_{};
  bool has_bytes_ = false;
};

}  // namespace echelon
