// Faults of what a rank is given of a sequence: between the batch on the host and its upload.
#include "blueprint/batch_layout.h"
#include "context/key_ranges.h"
#include "tensor/tokens.h"
#include "verify/ring_plants.h"

#include <algorithm>

namespace echelon::testing {
namespace {

/// In the order in which load_batch uploads it.
enum class Uploaded : std::uint8_t { tokens, targets, key_begin, key_end };

/// Changes a rank's part of a batch before it is uploaded.
class ChangedBatch : public Plant {
 public:
  void begins(Place& place) override {
    if (place.action.kind == ActionKind::load_batch) num_uploads_ = 0;
  }
  bool replaces_upload(Place& place, Tensor out, const void* host) override {
    const int which = num_uploads_++;
    if (place.action.kind != ActionKind::load_batch || which > static_cast<int>(Uploaded::key_end) ||
        place.mesh.shape().degree(Axis::cp) == 1)
      return false;
    const auto* given = static_cast<const std::int32_t*>(host);
    std::vector<std::int32_t> values(given, given + out.num_elements());
    change(place, static_cast<Uploaded>(which), values);
    place.ops.upload(out, values.data());
    return true;
  }

 protected:
  virtual void change(Place& place, Uploaded which, std::vector<std::int32_t>& values) = 0;
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

 private:
  int num_uploads_ = 0;
};

class MovedDocuments final : public ChangedBatch {
 public:
  MovedDocuments(const RunConfig& config, const BatchSource& batches, int by)
      : config_(config), batches_(batches), by_(by) {}

 private:
  void change(Place& place, Uploaded which, std::vector<std::int32_t>& values) override {
    if (which != Uploaded::key_begin && which != Uploaded::key_end) return;
    const RankTokens& tokens = *options(place).tokens;
    const auto B = static_cast<std::size_t>(options(place).num_sequences), cp = static_cast<std::size_t>(tokens.cp),
               rows = static_cast<std::size_t>(tokens.rows);
    std::vector<std::int32_t> other(values.size());
    const bool is_begin = which == Uploaded::key_begin;
    std::size_t row = 0;
    for (const std::int64_t sequence :
         BatchLayout(config_).sequences_of(place.mesh.rank(), (place.step - 1) * config_.training.global_batch_size)) {
      const TokenLists lists = lists_of(place, documents_of(sequence, 0));
      const DocumentOffsets moved = documents_of(sequence, by_);
      for (std::size_t source = 0; source < cp; ++source) {
        const std::size_t at = ((row / B * cp + source) * B + row % B) * rows;
        write_key_ranges({lists.positions(tokens.rank), lists.positions(static_cast<int>(source))}, {moved},
                         {std::span(is_begin ? values : other).subspan(at, rows),
                          std::span(is_begin ? other : values).subspan(at, rows)});
      }
      ++row;
    }
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

class VisiblePadding final : public ChangedBatch {
 private:
  void change(Place& place, Uploaded which, std::vector<std::int32_t>& values) override {
    if (which != Uploaded::key_end) return;
    const RankTokens& tokens = *options(place).tokens;
    const TokenLists lists = lists_of(place);
    const auto of_block = static_cast<std::size_t>(options(place).num_sequences * lists.rows());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int source = static_cast<int>(i / of_block) % tokens.cp;
      const std::int64_t row = static_cast<std::int64_t>(i) % lists.rows(),
                         num_tokens = std::ssize(lists.positions(source));
      const bool is_query = row < std::ssize(lists.positions(tokens.rank));
      if (is_query && values[i] == num_tokens && num_tokens < lists.rows()) ++values[i];
    }
  }
};

class LostTargets final : public ChangedBatch {
 private:
  void change(Place& place, Uploaded which, std::vector<std::int32_t>& values) override {
    if (which != Uploaded::targets) return;
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
  void change(Place& place, Uploaded which, std::vector<std::int32_t>& values) override {
    if (which == Uploaded::tokens) tokens_ = values;
    if (which != Uploaded::targets) return;
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
  void change(Place& place, Uploaded which, std::vector<std::int32_t>& values) override {
    if (which == Uploaded::tokens && place.coordinate(Axis::cp) == coordinate_)
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
