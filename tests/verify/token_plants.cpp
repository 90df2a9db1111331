// Faults of what a rank is given of a sequence: between the batch on the host and its upload.
#include "blueprint/batch_layout.h"
#include "context/key_blocks.h"
#include "context/key_ranges.h"
#include "tensor/tokens.h"
#include "verify/exchange_plants.h"
#include "verify/ring_plants.h"

#include <algorithm>
#include <numeric>

namespace echelon::testing {
namespace {

/// Changes a rank's part of a batch before it is uploaded.
class ChangedBatch : public Plant {
 public:
  void begins(Place& place) override {
    if (place.action.kind == ActionKind::load_batch) next_ = 0;
  }
  bool replaces_upload(Place& place, Tensor out, const void* host) override {
    if (place.action.kind != ActionKind::load_batch || place.mesh.shape().degree(Axis::cp) == 1) return false;
    while (next_ < batch_roles.size() && place.run->model().part().batch_size(batch_roles[next_]) == 0) ++next_;
    if (next_ == batch_roles.size()) return false;  // the scalars
    const auto* given = static_cast<const std::int32_t*>(host);
    std::vector<std::int32_t> values(given, given + out.num_elements());
    change(place, batch_roles[next_++], values);
    place.ops.upload(out, values.data());
    return true;
  }

 protected:
  virtual void change(Place& place, BufferRole which, std::vector<std::int32_t>& values) = 0;
  [[nodiscard]] static const LayerOptions& options(const Place& place) { return place.run->model().part().options; }
  /// Of a sequence with these documents.
  [[nodiscard]] static TokenLists lists_of(const Place& place, const DocumentOffsets& documents) {
    TokenLists lists;
    lists.assign(options(place).tokens->split, documents);
    return lists;
  }
  [[nodiscard]] static TokenLists lists_of(const Place& place) {
    return lists_of(place, {0, static_cast<std::int32_t>(options(place).tokens->split.seq_len)});
  }
  [[nodiscard]] static KeyBlocks blocks_of(const Place& place, const TokenLists& lists, int cp_rank) {
    const RankTokens& tokens = *options(place).tokens;
    KeyBlocks blocks;
    blocks.assign(tokens.split, lists, tokens.exchange, cp_rank);
    return blocks;
  }

 private:
  std::size_t next_ = 0;  // of the roles
};

/// Other ranges of keys, of one window.
class ChangedRanges : public ChangedBatch {
 protected:
  /// Whose queries, and the documents.
  struct Source {
    int cp_rank = 0;
    DocumentOffsets lists, documents;
  };
  [[nodiscard]] virtual Source source_of(const Place& place, std::size_t row) = 0;

 private:
  void change(Place& place, BufferRole which, std::vector<std::int32_t>& values) override {
    if (which != BufferRole::key_begin && which != BufferRole::key_end) return;
    const RankTokens& tokens = *options(place).tokens;
    const auto B = static_cast<std::size_t>(options(place).num_sequences),
               num_blocks = static_cast<std::size_t>(tokens.blocks.num_blocks()),
               rows = static_cast<std::size_t>(tokens.blocks.num_query_rows());
    std::vector<std::int32_t> other(values.size());
    const bool is_begin = which == BufferRole::key_begin;
    for (std::size_t row = 0; row < values.size() / (num_blocks * rows); ++row) {
      const Source source = source_of(place, row);
      const TokenLists lists = lists_of(place, source.lists);
      const KeyBlocks blocks = blocks_of(place, lists, source.cp_rank);
      for (std::size_t block = 0; block < num_blocks; ++block) {
        const std::size_t at = ((row / B * num_blocks + block) * B + row % B) * rows;
        write_key_ranges({blocks.queries(), blocks.keys(lists, static_cast<int>(block))}, {source.documents},
                         {std::span(is_begin ? values : other).subspan(at, rows),
                          std::span(is_begin ? other : values).subspan(at, rows)});
      }
    }
  }
};

class MovedDocuments final : public ChangedRanges {
 public:
  MovedDocuments(const RunConfig& config, const BatchSource& batches, int by)
      : config_(config), batches_(batches), by_(by) {}

 private:
  [[nodiscard]] Source source_of(const Place& place, std::size_t row) override {
    const std::int64_t sequence = BatchLayout(config_).sequences_of(
        place.mesh.rank(), (place.step - 1) * config_.training.global_batch_size)[row];
    return {options(place).tokens->rank, documents_of(sequence, 0), documents_of(sequence, by_)};
  }

  /// Those after the first start `by` positions later.
  [[nodiscard]] DocumentOffsets documents_of(std::int64_t sequence, int by) const {
    const std::int64_t T = config_.training.seq_len;
    std::vector<std::int32_t> starts(static_cast<std::size_t>(T));
    batches_.read_document_starts(sequence, T, starts.data());
    DocumentOffsets offsets;
    find_documents(starts, offsets);
    for (std::size_t i = 1; i + 1 < offsets.size(); ++i)
      offsets[i] = std::clamp<std::int32_t>(offsets[i] + by, 0, static_cast<std::int32_t>(T));
    return offsets;
  }

  RunConfig config_;
  const BatchSource& batches_;
  int by_;
};

class RangesOfNextRank final : public ChangedRanges {
 private:
  [[nodiscard]] Source source_of(const Place& place, std::size_t /*row*/) override {
    const RankTokens& tokens = *options(place).tokens;
    const DocumentOffsets whole = {0, static_cast<std::int32_t>(tokens.split.seq_len)};
    return {(tokens.rank + 1) % tokens.cp, whole, whole};
  }
};

class VisiblePadding final : public ChangedBatch {
 private:
  void change(Place& place, BufferRole which, std::vector<std::int32_t>& values) override {
    if (which != BufferRole::key_end) return;
    const RankTokens& tokens = *options(place).tokens;
    const TokenLists lists = lists_of(place);
    const KeyBlocks blocks = blocks_of(place, lists, tokens.rank);
    const std::int64_t key_rows = blocks.ranks_of_block() > 1 ? blocks.num_gathered_rows() : lists.rows();
    const auto of_block = static_cast<std::size_t>(options(place).num_sequences * blocks.num_query_rows());
    // Padding queries too: ends do not decrease.
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t num_tokens =
          std::ssize(blocks.keys(lists, static_cast<int>(i / of_block) % blocks.num_blocks()));
      if (values[i] == num_tokens && num_tokens < key_rows) ++values[i];
    }
  }
};

/// Gathered rows stay in the order of the ranks.
class RowsInRankOrder final : public ChangedBatch {
 private:
  void change(Place& /*place*/, BufferRole which, std::vector<std::int32_t>& values) override {
    if (which == BufferRole::rows_by_position) std::iota(values.begin(), values.end(), 0);
  }
};

class LostTargets final : public ChangedBatch {
 private:
  void change(Place& place, BufferRole which, std::vector<std::int32_t>& values) override {
    if (which != BufferRole::targets) return;
    const RankTokens& tokens = *options(place).tokens;
    const TokenLists lists = lists_of(place);
    const auto positions = lists.positions(tokens.rank);
    const auto rows = static_cast<std::size_t>(lists.rows());
    std::int32_t last = 0;
    for (int part = 0; part < tokens.cp; ++part) last = std::max(last, lists.positions(part).back());
    for (std::size_t first = 0; first < values.size(); first += rows)
      for (std::size_t i = 0; i < positions.size(); ++i)
        if (positions[i] != last && (i + 1 == positions.size() || positions[i + 1] != positions[i] + 1))
          values[first + i] = ignored_target;
  }
};

class OwnTargets final : public ChangedBatch {
 private:
  void change(Place& place, BufferRole which, std::vector<std::int32_t>& values) override {
    if (which == BufferRole::tokens) tokens_ = values;
    if (which != BufferRole::targets) return;
    const RankTokens& tokens = *options(place).tokens;
    const TokenLists lists = lists_of(place);
    const auto num_tokens = lists.positions(tokens.rank).size();
    const auto rows = static_cast<std::size_t>(lists.rows());
    for (std::size_t first = 0; first < values.size(); first += rows)
      for (std::size_t i = 0; i + 1 < num_tokens; ++i)
        if (values[first + i] != ignored_target) values[first + i] = tokens_[first + i + 1];
  }

  std::vector<std::int32_t> tokens_;
};

class OtherSequence final : public ChangedBatch {
 public:
  explicit OtherSequence(int coordinate) : coordinate_(coordinate) {}

 private:
  void change(Place& place, BufferRole which, std::vector<std::int32_t>& values) override {
    if (which == BufferRole::tokens && place.coordinate(Axis::cp) == coordinate_)
      std::ranges::rotate(values, values.begin() + options(place).seq_len);
  }

  int coordinate_;
};

}  // namespace

Seed moved_documents_by(const RunConfig& config, const BatchSource& batches, int by) {
  return [config, &batches, by] { return std::make_unique<MovedDocuments>(config, batches, by); };
}
Seed visible_padding() {
  return [] { return std::make_unique<VisiblePadding>(); };
}
Seed ranges_of_next_rank() {
  return [] { return std::make_unique<RangesOfNextRank>(); };
}
Seed rows_in_rank_order() {
  return [] { return std::make_unique<RowsInRankOrder>(); };
}
Seed lost_targets() {
  return [] { return std::make_unique<LostTargets>(); };
}
Seed own_targets() {
  return [] { return std::make_unique<OwnTargets>(); };
}
Seed other_sequence_on(int cp_coordinate) {
  return [cp_coordinate] { return std::make_unique<OtherSequence>(cp_coordinate); };
}

}  // namespace echelon::testing
