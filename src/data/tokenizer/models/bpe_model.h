// Byte-pair encoding of pieces (Sennrich et al. 2016, arXiv:1508.07909), on bytes or on characters.
#pragma once

#include "data/tokenizer/models/merge_table.h"
#include "data/tokenizer/models/safe_cuts.h"
#include "data/tokenizer/models/token_search.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace echelon {

/// Thread-safe.
class BpeModel {
 public:
  /// Keeps views of the tokens. Throws Error, starting with `name`, if one of the 256 bytes has no token at byte level,
  /// or tokens and merges contradict each other.
  BpeModel(const TokenizerSpec& spec, const std::string& name);

  /// Appends the ids of a piece. Without may_be_control, the piece as a whole is not encoded as a control token. A
  /// character without a token is left out if there is none for unknown ones either, as in the library.
  void append(std::string_view piece, bool may_be_control, std::vector<std::int32_t>& ids) const;

  /// Where pieces may be split further.
  [[nodiscard]] const SafeCuts& cuts() const { return safe_cuts_; }

 private:
  /// Writes at most piece.size() symbols and returns how many.
  std::size_t symbols_of(std::string_view piece, std::int32_t* symbols) const;
  std::vector<std::int32_t> find_characters();
  [[nodiscard]] SafeCuts safe_cuts(const TokenizerSpec& spec) const;
  void merge_few(std::span<std::int32_t> id, std::vector<std::int32_t>& ids) const;
  void merge_many(std::span<const std::int32_t> symbols, std::vector<std::int32_t>& ids) const;

  bool is_byte_level_, prefers_whole_pieces_, fuses_unknown_;
  std::optional<std::int32_t> unknown_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};  // of bytes, or of <0x00> to <0xFF> if it has all
  bool has_bytes_ = false;
  std::unordered_map<std::string_view, std::int32_t> whole_pieces_;
  PairMap<std::int32_t> characters_;  // (0, code point): its token, unless the model is byte_level
  std::unordered_set<std::int32_t> control_;
  SafeCuts safe_cuts_;
  TokenSearch search_;
};

}  // namespace echelon
