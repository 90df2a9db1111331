#include "nn/decoder/rope_tables.h"
#include "verify/activations.h"
#include "verify/context/explain_context.h"
#include "verify/explain.h"
#include "verify/gradient/explain_kv_parts.h"
#include "verify/router/explain_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace echelon {
namespace {

/// A token that has the values of another token.
struct Misplaced {
  std::int64_t token = 0, as = 0;  // index in the global batch
  std::int64_t row = 0;            // of the rank's rows of the sequence
};

class ActivationExplainer {
 public:
  ActivationExplainer(const Case& at, std::int64_t step, const Activations& expected, const FirstWrongRead& first)
      : at_(at),
        step_(step),
        expected_(expected),
        first_(first),
        tp_(at.mesh().degree(Axis::tp)),
        T_(at.config().training.seq_len) {}

  std::vector<Finding> explain() {
    try_partial_sums();
    if (findings_.empty()) try_turned_heads();
    if (findings_.empty()) try_learned_positions();
    if (findings_.empty()) try_other_sequences();
    if (findings_.empty()) try_other_tokens();
    if (findings_.empty())
      add(FaultKind::unknown, "", read().name.tensor,
          fmt::format("it is off by up to {:.2g} of its largest number", error()));
    return std::move(findings_);
  }

 private:
  [[nodiscard]] const Read& read() const { return first_.wrong.front().read; }
  [[nodiscard]] double error() const {
    double most = 0;
    for (const WrongRead& wrong : first_.wrong) most = std::max(most, expected_.error_of(wrong.read));
    return most;
  }

  // Finds missing or surplus addends, as multiples of each tensor-parallel rank's partial result.
  void try_partial_sums() {
    if (tp_ == 1) return;
    const double n = tp_;
    struct Hypothesis {
      std::function<double(int own, int part)> coefficient;
      FaultKind kind;
      std::string evidence;
    };
    std::vector<Hypothesis> hypotheses = {
        {[](int own, int part) { return part == own ? 0.0 : -1.0; }, FaultKind::missing_sum,
         "each rank has its own part alone: the parts were not summed over tp"},
        {[n](int, int) { return n - 1; }, FaultKind::repeated_sum,
         fmt::format("it has {} times the sum over tp: summed, and summed once more", n)},
        {[n](int, int) { return 1 / n - 1; }, FaultKind::mean_for_sum,
         fmt::format("it has the sum over tp divided by {}: a mean where a sum belongs", n)}};
    for (int lost = 0; lost < tp_; ++lost)
      hypotheses.push_back({[lost](int, int part) { return part == lost ? -1.0 : 0.0; }, FaultKind::missing_sum,
                            fmt::format("the part of tensor-parallel rank {} is missing from the sum over tp", lost)});
    for (const Hypothesis& hypothesis : hypotheses) {
      const bool holds = std::ranges::all_of(first_.wrong, [&](const WrongRead& wrong) {
        const auto combination = as_partial_sums(wrong);
        if (!combination || combination->residual > at_.precision) return false;
        const int own = at_.mesh().coordinate(wrong.read.rank, Axis::tp);
        for (int part = 0; part < tp_; ++part)
          if (!is_near(combination->coefficients[static_cast<std::size_t>(part)], hypothesis.coefficient(own, part),
                       at_.precision))
            return false;
        return true;
      });
      if (!holds) continue;
      const char* what = read().name.is_backward ? "the gradient of the input of " : "the output of ";
      return add(hypothesis.kind, "tp", what + first_.wrong.front().partial.weight, hypothesis.evidence);
    }
  }

  std::optional<Combination> as_partial_sums(const WrongRead& wrong) const {
    Values surplus = wrong.read.values;
    const Values right = expected_.expected(wrong.read);
    const auto is_padding = [&](std::size_t i) { return std::isnan(right[i]); };
    for (std::size_t i = 0; i < surplus.size(); ++i) surplus[i] = is_padding(i) ? 0 : surplus[i] - right[i];
    std::vector<Values> parts(static_cast<std::size_t>(tp_));
    std::size_t num_found = 0;
    for (const int rank : at_.mesh().ranks_of({AxisSet{Axis::tp}}, wrong.read.rank))
      for (const auto* list : {&first_.wrong, &first_.others})
        for (const WrongRead& other : *list) {
          if (other.read.rank != rank || other.partial.weight != wrong.partial.weight) continue;
          const std::int64_t skipped = wrong.read.first_row * wrong.read.num_columns;
          const std::int64_t size = static_cast<std::int64_t>(surplus.size());
          if (static_cast<std::int64_t>(other.partial.values.size()) < skipped + size || other.partial.num_rows == 0)
            continue;
          const auto begin = other.partial.values.begin() + skipped;
          Values& part = parts[static_cast<std::size_t>(at_.mesh().coordinate(rank, Axis::tp))];
          part = {begin, begin + size};
          for (std::size_t i = 0; i < part.size(); ++i)
            if (is_padding(i)) part[i] = 0;
          ++num_found;
        }
    if (wrong.partial.weight.empty() || num_found != parts.size()) return std::nullopt;
    return combine(surplus, parts);
  }

  // Queries and keys at position t that are rotated by the angle of another position.
  void try_turned_heads() {
    if (!read().name.tensor.starts_with("queries") && !read().name.tensor.starts_with("keys")) return;
    const ModelSpec& model = at_.config().model;
    if (!has_rope_in_layer(model, read().name.tensor)) return;
    const RopeSpec rope = model.ropes()[model.rope_index(window_of_layer(model, read().name.tensor))];
    const std::vector<double> frequencies = rotation_of(model, rope, at_.config().training.seq_len).frequencies;
    const std::int64_t half = std::ssize(frequencies), C = model.head_dim;
    try_tokens(FaultKind::wrong_position, "are turned like those at positions",
               [&](const double* expected, std::int64_t turns, std::int64_t num_columns) {
                 Values turned(expected, expected + num_columns);
                 for (std::int64_t i = 0; i < num_columns; ++i) {
                   if (i % C >= 2 * half) continue;
                   const std::int64_t head = i / C * C, pair = i % C % half;
                   const double angle = static_cast<double>(turns) * frequencies[static_cast<std::size_t>(pair)];
                   const double x = expected[head + pair], y = expected[head + pair + half];
                   turned[static_cast<std::size_t>(i)] = i % C < half ? x * std::cos(angle) - y * std::sin(angle)
                                                                      : y * std::cos(angle) + x * std::sin(angle);
                 }
                 return turned;
               });
  }

  // The embedding's output plus the vector of another position.
  void try_learned_positions() {
    const std::string name = "model.embed_positions.weight";
    if (!at_.reference.step(0).weights.tensors().contains(name) ||
        read().name.tensor != "input of model.layers.0.input_layernorm.weight")
      return;
    const std::vector<double>& table = at_.reference.weight(step_ - 1, name);
    current_token_ = 0;
    try_tokens(FaultKind::wrong_position, "are given the vectors of positions",
               [&](const double* expected, std::int64_t turns, std::int64_t num_columns) {
                 Values moved(expected, expected + num_columns);
                 const std::int64_t position = current_token_ % T_;
                 for (std::int64_t i = 0; i < num_columns; ++i)
                   moved[static_cast<std::size_t>(i)] +=
                       table[static_cast<std::size_t>((position + turns) * num_columns + i)] -
                       table[static_cast<std::size_t>(position * num_columns + i)];
                 return moved;
               });
  }

  /// Whether every wrong token equals `moved(expected, by how many positions)`.
  void try_tokens(FaultKind kind, const char* how,
                  const std::function<Values(const double*, std::int64_t, std::int64_t)>& moved) {
    std::vector<Misplaced> misplaced;
    for (const WrongRead& wrong : first_.wrong) {
      const Values expected = expected_.expected(wrong.read);
      const std::int64_t num_columns = wrong.read.num_columns;
      for (std::int64_t row = 0; row < wrong.read.num_rows(); ++row) {
        const double* actual = wrong.read.values.data() + row * num_columns;
        const double* right = expected.data() + row * num_columns;
        if (is_same(actual, right, num_columns)) continue;
        current_token_ = wrong.read.tokens[static_cast<std::size_t>(row)];
        const std::int64_t position = current_token_ % T_;
        std::int64_t as = 0;
        while (as < T_ && !is_same(actual, moved(right, as - position, num_columns).data(), num_columns)) ++as;
        if (as == T_) return;
        misplaced.push_back({current_token_, current_token_ - position + as, row_of(current_token_)});
      }
    }
    add_misplaced(kind, how, misplaced);
  }

  // Sequences that have the values of other sequences, in all of the rank's tokens.
  void try_other_sequences() {
    const Activation& whole = *expected_.of(read().name);
    const auto num_sequences = static_cast<std::int64_t>(whole.values.size()) / whole.num_columns / T_;
    std::map<std::int64_t, std::int64_t> source;  // of each sequence
    for (const WrongRead& wrong : first_.wrong) {
      std::map<std::int64_t, std::vector<std::int64_t>> rows;  // of each sequence
      for (std::int64_t row = 0; row < wrong.read.num_rows(); ++row)
        if (const std::int64_t token = wrong.read.tokens[static_cast<std::size_t>(row)]; token != no_token)
          rows[token / T_].push_back(row);
      for (const auto& [sequence, of_sequence] : rows) {
        std::int64_t other = 0;
        while (other < num_sequences && !has_tokens_of(wrong.read, whole, of_sequence, other)) ++other;
        if (has_tokens_of(wrong.read, whole, of_sequence, sequence)) other = sequence;
        if (other == num_sequences) return;
        source[sequence] = other;
      }
    }
    std::erase_if(source, [](const auto& pair) { return pair.first == pair.second; });
    if (source.empty()) return;
    const BatchLayout layout(at_.config());
    const auto microbatch_of = [&](std::int64_t sequence) { return layout.place_of(sequence).microbatch; };
    const auto [sequence, other] = *source.begin();
    if (read().stage > 0 && std::ranges::all_of(source, [&](const auto& pair) {
          return microbatch_of(pair.first) != microbatch_of(pair.second);
        }))
      return add(FaultKind::wrong_message, "pp", read().name.tensor,
                 fmt::format("it is that of microbatch {} instead of {}", microbatch_of(other), read().microbatch));
    add(FaultKind::wrong_sequence, "", read().name.tensor,
        fmt::format("sequence {} of the global batch has the values of sequence {}", sequence, other));
  }

  [[nodiscard]] bool has_tokens_of(const Read& read, const Activation& whole, const std::vector<std::int64_t>& rows,
                                   std::int64_t sequence) const {
    const std::int64_t num_columns = std::min(read.num_columns, whole.num_columns - read.first_column);
    return std::ranges::all_of(rows, [&](std::int64_t row) {
      const double* actual = read.values.data() + row * read.num_columns;
      const std::int64_t token = sequence * T_ + read.tokens[static_cast<std::size_t>(row)] % T_;
      return is_same(actual, whole.row(token) + read.first_column, num_columns);
    });
  }

  // Tokens that have the values of other tokens, or none.
  void try_other_tokens() {
    const Activation& whole = *expected_.of(read().name);
    const auto num_tokens = static_cast<std::int64_t>(whole.values.size()) / whole.num_columns;
    std::vector<Misplaced> misplaced;
    bool all_are_zero = true;
    for (const WrongRead& wrong : first_.wrong) {
      const std::int64_t num_columns = std::min(wrong.read.num_columns, whole.num_columns - wrong.read.first_column);
      for (std::int64_t row = 0; row < wrong.read.num_rows(); ++row) {
        const double* actual = wrong.read.values.data() + row * wrong.read.num_columns;
        const std::int64_t token = wrong.read.tokens[static_cast<std::size_t>(row)];
        if (token == no_token) continue;
        const auto token_like = [&](std::int64_t other) {
          return is_same(actual, whole.row(other) + wrong.read.first_column, num_columns);
        };
        if (token_like(token)) continue;
        all_are_zero =
            all_are_zero && std::all_of(actual, actual + num_columns, [](double number) { return number == 0; });
        std::int64_t as = 0;
        while (as < num_tokens && !token_like(as)) ++as;
        misplaced.push_back({token, as < num_tokens ? as : -1, row_of(token)});
      }
    }
    if (all_are_zero)
      return add(FaultKind::missing_gather, tp_ > 1 ? "tp" : "", read().name.tensor,
                 "tokens of other ranks are zero: they were not gathered");
    if (std::ranges::any_of(misplaced, [](const Misplaced& token) { return token.as < 0; })) return;
    add_misplaced(FaultKind::wrong_position, "have the values of positions", misplaced);
  }

  [[nodiscard]] bool is_same(const double* a, const double* b, std::int64_t count) const {
    const double most = expected_.of(read().name)->largest * at_.tolerance;
    for (std::int64_t i = 0; i < count; ++i)
      if (!(std::abs(a[i] - b[i]) <= most || std::isnan(b[i]))) return false;
    return true;
  }

  [[nodiscard]] std::int64_t row_of(std::int64_t token) const { return expected_.places().row_of(token); }

  void add_misplaced(FaultKind kind, const char* how, const std::vector<Misplaced>& misplaced) {
    if (misplaced.empty()) return;
    const Misplaced& first = misplaced.front();
    std::string axis, evidence = fmt::format("{} tokens, from position {} of sequence {} on, {} {} and following",
                                             misplaced.size(), first.token % T_, first.token / T_, how, first.as % T_);
    // Outside of layers, the tokens of a tensor-parallel rank start at a multiple of this.
    const std::int64_t B = at_.config().training.micro_batch_size, slice = B * T_ / tp_;
    const std::int64_t in_microbatch = first.token % (B * T_);
    if (expected_.places().cp() > 1 &&
        std::ranges::all_of(misplaced, [&](const Misplaced& token) { return token.as % T_ == token.row; })) {
      axis = "cp";
      evidence += ": they are counted from the start of the rank's own tokens";
    } else if (tp_ > 1 && in_microbatch % slice == 0) {
      axis = "tp";
      evidence += fmt::format("; the {} tokens of tensor-parallel rank {} start there", slice, in_microbatch / slice);
    }
    add(kind, axis, read().name.tensor, evidence);
  }

  void add(FaultKind kind, const std::string& axis, const std::string& tensor, const std::string& evidence) {
    findings_.push_back({.kind = kind,
                         .axis = axis,
                         .tensor = tensor,
                         .where = describe_read(at_, step_, first_),
                         .evidence = evidence});
  }

  const Case& at_;
  std::int64_t step_;
  const Activations& expected_;
  const FirstWrongRead& first_;
  int tp_;
  std::int64_t T_;
  std::int64_t current_token_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> explain_activations(const Case& at, std::int64_t step, bool is_backward) {
  const Activations expected(at, step);
  const FirstWrongRead first = first_wrong_read(at, expected, is_backward);
  if (first.wrong.empty()) return {};
  if (auto findings = explain_context(at, expected, first); !findings.empty()) return findings;
  if (auto findings = explain_kv_parts(at, step, expected, first); !findings.empty()) return findings;
  std::vector<Finding> findings = ActivationExplainer(at, step, expected, first).explain();
  if (findings.front().kind == FaultKind::unknown)
    if (auto of_rows = explain_expert_rows(at, step, expected, first); !of_rows.empty()) return of_rows;
  return findings;
}

}  // namespace echelon
