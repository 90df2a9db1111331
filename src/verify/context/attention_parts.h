// Attention of one layer for single queries, from the reference's queries, keys and values, by the cp rank that holds
// the keys: a naive loop. What a ring computed is then compared with sums of these parts.
#pragma once

#include "nn/decoder/rope_tables.h"
#include "verify/activations.h"

#include <functional>
#include <span>

namespace echelon {

/// Attention of a query to the keys of one cp rank alone.
struct HeadPart {
  double lse = 0;  // -inf: it sees none of them
  Values out;      // [head_dim]
};

/// Attention to the keys of several cp ranks. `parts`: of each rank.
[[nodiscard]] HeadPart united(const std::vector<HeadPart>& parts, const std::vector<int>& ranks);

enum class HeadGradient : std::uint8_t { queries, keys, values };

class AttentionParts {
 public:
  /// `layer` is "model.layers.3.self_attn".
  AttentionParts(const Case& at, const Activations& expected, const std::string& layer);

  [[nodiscard]] bool has_forward() const { return queries_ && keys_ && values_; }
  [[nodiscard]] bool has_backward() const { return has_forward() && of_result_; }

  /// Of a token's query head, one for each cp rank.
  [[nodiscard]] std::vector<HeadPart> forward(std::int64_t token, std::int64_t head) const;

  /// A gradient as projections read it, for the tokens and columns of `read`: the addend from each cp rank. A rank's
  /// part of a query's gradient comes from its keys, of a key's or value's gradient from its queries. The rows are
  /// turned back by the positions of `turned`, if there are any, instead of the tokens' own.
  [[nodiscard]] std::vector<Values> gradient(HeadGradient which, const Read& read,
                                             std::span<const std::int64_t> turned = {}) const;

  /// The gradient of keys or values by the query heads that read them, in `num_parts` equal parts of a group.
  [[nodiscard]] std::vector<Values> gradient_by_heads(HeadGradient which, const Read& read, int num_parts) const;

 private:
  /// A query head with its softmax over all keys that it sees.
  struct Query {
    std::int64_t token = 0, head = 0;
    double lse = 0, delta = 0;
  };
  /// Which addend a pair of a query and a key is part of: of the query's token, its head within the group, and the key.
  using PartOf = std::function<int(std::int64_t query, std::int64_t head_in_group, std::int64_t key)>;
  struct Addends {
    std::size_t count = 0;
    PartOf part_of;
  };
  [[nodiscard]] std::vector<Values> addends(HeadGradient which, const Read& read, const Addends& by,
                                            std::span<const std::int64_t> turned) const;
  [[nodiscard]] Query query_at(std::int64_t token, std::int64_t head) const;
  [[nodiscard]] double score(std::int64_t query, std::int64_t key, std::int64_t head) const;
  [[nodiscard]] std::vector<std::int64_t> keys_of(std::int64_t token, int cp_rank) const;
  [[nodiscard]] bool sees(std::int64_t query, std::int64_t key) const;  // of one sequence
  /// Adds what the pair of a query and a key gives to the gradient of one of them, head_dim values from `out` on.
  void add(HeadGradient which, const Query& query, std::int64_t key, double* out) const;
  /// The transposed rotation of a head by its position.
  void turn_back(HeadGradient which, double* head, std::int64_t token) const;

  [[nodiscard]] const double* row(const Activation* of, std::int64_t token, std::int64_t head) const {
    return of->row(token) + head * C_;
  }

  const TokenPlaces& places_;
  const Activation *queries_, *keys_, *values_, *of_result_;
  std::int64_t C_, group_, T_;
  double scale_, soft_cap_;
  std::int64_t window_;
  Rotation rotation_, rotation_of_queries_;  // of RoPE; no frequencies: none
};

}  // namespace echelon
