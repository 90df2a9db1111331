// Which keys of a block queries see, where it differs from what the positions of the tokens and the documents
// of the sequence say.
#include "verify/context/explain_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace echelon {
namespace {

RowRange range_at(const Read& read, std::size_t row) {
  return {static_cast<std::int64_t>(read.values[2 * row]), static_cast<std::int64_t>(read.values[2 * row + 1])};
}

/// Calls visit(row, token) for the rows of queries.
bool all_queries(const Read& read, const std::function<bool(std::size_t row, std::int64_t token)>& visit) {
  for (std::size_t row = 0; row < read.tokens.size(); ++row)
    if (read.tokens[row] != no_token && !visit(row, read.tokens[row])) return false;
  return true;
}

class RangeExplainer {
 public:
  explicit RangeExplainer(const WrongContext& wrong)
      : wrong_(wrong),
        places_(wrong.places()),
        T_(places_.config().training.seq_len),
        window_(window_of_layer(places_.config().model, wrong.name().tensor)) {}

  std::vector<Finding> explain() {
    for (const auto& attempt : {&RangeExplainer::try_padding, &RangeExplainer::try_other_block,
                                &RangeExplainer::try_other_queries, &RangeExplainer::try_boundaries})
      if (auto found = (this->*attempt)(); !found.empty()) return found;
    return {wrong_.finding(FaultKind::unknown, first_difference())};
  }

 private:
  // Every wrong range is longer than it should be by rows after the block's tokens alone.
  std::vector<Finding> try_padding() {
    std::string evidence;
    for (const WrongRead& each : wrong_.first.wrong) {
      const int block = wrong_.block_of(each.read);
      const bool fits = all_queries(each.read, [&](std::size_t row, std::int64_t token) {
        const std::int64_t num_tokens = std::ssize(places_.keys(token / T_, block));
        const RowRange right = places_.rows_seen_by(token, block, window_), range = range_at(each.read, row);
        if (range == right) return true;
        if (evidence.empty())
          evidence = fmt::format(
              "the query at position {} of sequence {} sees row {} of the block of {}, which has {} tokens: the rest "
              "is padding",
              token % T_, token / T_, range.end - 1, wrong_.owner_of(block), num_tokens);
        const bool had_keys = right.begin < right.end;
        return range.end > num_tokens &&
               (had_keys ? range.begin == right.begin && right.end == num_tokens : range.begin >= num_tokens);
      });
      if (!fits) return {};
    }
    return {wrong_.finding(FaultKind::visible_padding, evidence)};
  }

  // The ranges are right for another block.
  std::vector<Finding> try_other_block() {
    std::string evidence;
    for (const WrongRead& each : wrong_.first.wrong) {
      int other = 0;
      const auto is_of_other = [&](std::size_t row, std::int64_t token) {
        return range_at(each.read, row) == places_.rows_seen_by(token, other, window_);
      };
      while (other < places_.num_blocks() && !all_queries(each.read, is_of_other)) ++other;
      if (other == places_.num_blocks()) return {};
      if (evidence.empty())
        evidence = fmt::format("at hop {} rank {} masks the block of {} like that of {}", each.read.hop, each.read.rank,
                               wrong_.owner_of(wrong_.block_of(each.read)), wrong_.owner_of(other));
    }
    return {wrong_.finding(FaultKind::wrong_ranges, evidence)};
  }

  // The ranges are right for the queries of another rank.
  std::vector<Finding> try_other_queries() {
    std::string evidence;
    for (const WrongRead& each : wrong_.first.wrong) {
      int other = 0;
      while (other < places_.cp() && !has_ranges_of(each.read, other)) ++other;
      if (other == places_.cp()) return {};
      if (evidence.empty())
        evidence = fmt::format(
            "rank {} masks the keys of its queries like those of the queries of rank {} of its cp "
            "group",
            each.read.rank, other);
    }
    return {wrong_.finding(FaultKind::wrong_ranges, evidence)};
  }

  [[nodiscard]] bool has_ranges_of(const Read& read, int cp_rank) const {
    BlockPlace place = places_.place_of(read.rank, read.microbatch);
    if (place.cp_rank == cp_rank) return false;
    place.cp_rank = cp_rank;
    const std::vector<std::int64_t> queries = places_.queries_of(place);
    return all_queries(read, [&](std::size_t row, std::int64_t) {
      return queries[row] == no_token ||
             range_at(read, row) == places_.rows_seen_by(queries[row], wrong_.block_of(read), window_);
    });
  }

  // One document, or all that do not start with the sequence, start a position earlier or later.
  std::vector<Finding> try_boundaries() {
    std::string evidence;
    for (const WrongRead& each : wrong_.first.wrong) {
      std::int64_t sequence = no_token;
      const bool fits = all_queries(each.read, [&](std::size_t row, std::int64_t token) {
        const int block = wrong_.block_of(each.read);
        if (token / T_ == sequence || range_at(each.read, row) == places_.rows_seen_by(token, block, window_))
          return true;
        sequence = token / T_;
        const std::string moved = moved_boundaries(each.read, sequence);
        if (evidence.empty()) evidence = moved;
        return !moved.empty();
      });
      if (!fits) return {};
    }
    return {wrong_.finding(FaultKind::wrong_document, evidence)};
  }

  /// Which boundaries of a sequence to move so that its ranges in `read` are right; empty: none.
  std::string moved_boundaries(const Read& read, std::int64_t sequence) {
    const DocumentOffsets& documents = places_.documents(sequence);
    for (const int by : {1, -1})
      for (std::size_t only = 0; only + 1 < documents.size(); ++only) {  // 0: all
        DocumentOffsets moved = documents;
        for (std::size_t i = 1; i + 1 < moved.size(); ++i)
          if (only == 0 || only == i)
            moved[i] = std::clamp<std::int32_t>(moved[i] + by, 0, static_cast<std::int32_t>(T_));
        const bool fits = all_queries(read, [&](std::size_t row, std::int64_t token) {
          return token / T_ != sequence ||
                 range_at(read, row) == places_.rows_seen_by(token, wrong_.block_of(read), {moved, window_});
        });
        if (!fits) continue;
        const std::size_t shown = std::max<std::size_t>(1, only);
        return fmt::format("{} of sequence {} is taken to start at position {} instead of {}",
                           only == 0 ? "every document after the first, and so the one" : "the document", sequence,
                           moved[shown], documents[shown]);
      }
    return {};
  }

  std::string first_difference() const {
    const Read& read = wrong_.first.wrong.front().read;
    std::string text = "it differs";
    all_queries(read, [&](std::size_t row, std::int64_t token) {
      const RowRange range = range_at(read, row), right = places_.rows_seen_by(token, wrong_.block_of(read), window_);
      if (range == right) return true;
      text = fmt::format(
          "at hop {} the query at position {} of sequence {} sees the rows from {} and before {} of its "
          "block instead of from {} and before {}",
          read.hop, token % T_, token / T_, range.begin, range.end, right.begin, right.end);
      return false;
    });
    return text;
  }

  const WrongContext& wrong_;
  const TokenPlaces& places_;
  std::int64_t T_, window_;
};

}  // namespace

std::vector<Finding> explain_ranges(const WrongContext& wrong) { return RangeExplainer(wrong).explain(); }

}  // namespace echelon
