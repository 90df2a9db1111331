#include "blueprint/memory_plan.h"

#include "base/error.h"

#include <algorithm>
#include <tuple>

namespace echelon {
namespace {

bool is_persistent(const PlannedBuffer& buffer) { return buffer.first_action == always; }

/// The transient buffers that have their place, by offset and, at one offset, by time. They come in blocks, so that
/// buffers that all live at the same time as another, or none of which does, are passed at once.
class PlacedBuffers {
  static constexpr int width = 128;

  struct Placed {
    std::int64_t offset = 0, end = 0;
    int first_action = 0, last_action = 0;
    bool operator<(const Placed& other) const {
      return std::tie(offset, first_action) < std::tie(other.offset, other.first_action);
    }
  };

 public:
  /// The lowest offset at or above `base` where `buffer` meets none that lives at the same time.
  [[nodiscard]] std::int64_t lowest_free_offset(const PlannedBuffer& buffer, std::int64_t base) const {
    std::int64_t offset = base;
    for (const Block& block : blocks_) {
      if (block.buffers.front().offset >= offset + buffer.num_bytes) break;
      if (block.end <= offset || block.min_first > buffer.last_action || block.max_last < buffer.first_action) continue;
      const bool all_live = block.max_first <= buffer.last_action && block.min_last >= buffer.first_action;
      if (all_live && block.widest_gap < buffer.num_bytes) {
        offset = block.end;
        continue;
      }
      for (const Placed& other : block.buffers) {
        if (other.first_action > buffer.last_action || buffer.first_action > other.last_action) continue;
        if (other.offset >= offset + buffer.num_bytes) return offset;
        offset = std::max(offset, other.end);
      }
    }
    return offset;
  }

  void insert(const PlannedBuffer& buffer) {
    const Placed placed = {buffer.offset, buffer.offset + buffer.num_bytes, buffer.first_action, buffer.last_action};
    auto block = std::lower_bound(blocks_.begin(), blocks_.end(), placed,
                                  [](const Block& each, const Placed& to) { return each.buffers.back() < to; });
    if (block == blocks_.end()) block = blocks_.empty() ? blocks_.insert(block, Block()) : block - 1;
    block->buffers.insert(std::upper_bound(block->buffers.begin(), block->buffers.end(), placed), placed);
    if (block->buffers.size() == 2 * width) {
      Block upper;
      upper.buffers.assign(block->buffers.begin() + width, block->buffers.end());
      upper.summarise();
      block->buffers.resize(width);
      block = blocks_.insert(block + 1, std::move(upper)) - 1;
    }
    block->summarise();
  }

 private:
  struct Block {
    std::vector<Placed> buffers;
    std::int64_t end = 0, widest_gap = 0;  // the gap if all of them live
    int min_first = 0, max_first = 0, min_last = 0, max_last = 0;

    void summarise() {
      end = buffers.front().offset;
      widest_gap = 0;
      min_first = max_first = buffers.front().first_action;
      min_last = max_last = buffers.front().last_action;
      for (const Placed& each : buffers) {
        widest_gap = std::max(widest_gap, each.offset - end);
        end = std::max(end, each.end);
        min_first = std::min(min_first, each.first_action);
        max_first = std::max(max_first, each.first_action);
        min_last = std::min(min_last, each.last_action);
        max_last = std::max(max_last, each.last_action);
      }
    }
  };

  std::vector<Block> blocks_;
};

/// The first action during which buffers have most bytes, and how many these are.
struct Peak {
  int action = 0;
  std::int64_t num_bytes = 0;
};

template <class Bytes>
Peak peak_of(const std::vector<PlannedBuffer>& buffers, const Bytes& bytes_of) {
  std::int64_t live = 0;
  std::map<int, std::int64_t> changes;  // action -> bytes that start there, less those that ended before it
  for (const PlannedBuffer& buffer : buffers) {
    const std::int64_t bytes = bytes_of(buffer);
    if (is_persistent(buffer)) {
      live += bytes;
    } else if (bytes != 0) {
      changes[buffer.first_action] += bytes;
      changes[buffer.last_action + 1] -= bytes;
    }
  }
  Peak peak = {.num_bytes = live};
  for (const auto& [action, bytes] : changes) {
    live += bytes;
    if (live > peak.num_bytes) peak = {action, live};
  }
  return peak;
}

}  // namespace

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::parameters: return "parameters";
    case MemoryCategory::gradients: return "gradients";
    case MemoryCategory::master_weights: return "master_weights";
    case MemoryCategory::moments: return "moments";
    case MemoryCategory::snapshot: return "snapshot";
    case MemoryCategory::padding: return "padding";
    case MemoryCategory::padding_rows: return "padding_rows";
    case MemoryCategory::constants: return "constants";
    case MemoryCategory::batch: return "batch";
    case MemoryCategory::activations: return "activations";
    case MemoryCategory::boundaries: return "boundaries";
    case MemoryCategory::workspace: return "workspace";
    case MemoryCategory::gathered_parameters: return "gathered_parameters";
    case MemoryCategory::unreduced_gradients: return "unreduced_gradients";
  }
  return "?";
}

std::vector<MemoryCategory> memory_categories() {
  std::vector<MemoryCategory> categories;
  for (auto c = MemoryCategory::parameters; c <= MemoryCategory::unreduced_gradients;
       c = static_cast<MemoryCategory>(static_cast<int>(c) + 1))
    categories.push_back(c);
  return categories;
}

MemoryPlan::MemoryPlan(std::vector<PlannedBuffer> buffers, const RowPadding& padding)
    : buffers_(std::move(buffers)), padding_(padding) {
  std::erase_if(buffers_, [](const PlannedBuffer& buffer) { return buffer.num_bytes == 0; });
  std::stable_sort(buffers_.begin(), buffers_.end(), [](const PlannedBuffer& a, const PlannedBuffer& b) {
    if (is_persistent(a) != is_persistent(b)) return is_persistent(a);
    return !is_persistent(a) && a.num_bytes > b.num_bytes;
  });
  std::int64_t persistent_bytes = 0;
  PlacedBuffers placed;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    PlannedBuffer& buffer = buffers_[i];
    index_.emplace_back(buffer.key, i);
    if (is_persistent(buffer)) {
      buffer.offset = persistent_bytes;
      persistent_bytes += buffer.num_bytes;
    } else {
      buffer.offset = placed.lowest_free_offset(buffer, persistent_bytes);
      placed.insert(buffer);
    }
    num_bytes_ = std::max(num_bytes_, buffer.offset + buffer.num_bytes);
  }
  std::sort(index_.begin(), index_.end());
}

const PlannedBuffer* MemoryPlan::find(BufferKey key) const {
  const auto found = std::lower_bound(index_.begin(), index_.end(), std::pair(key, std::size_t{0}));
  return found != index_.end() && found->first == key ? &buffers_[found->second] : nullptr;
}

const PlannedBuffer& MemoryPlan::at(BufferKey key) const {
  const PlannedBuffer* found = find(key);
  if (found == nullptr)
    throw Failure(fmt::format("the memory plan has no buffer of role {} index {} stage {} bucket {}",
                              static_cast<int>(key.role), key.index, key.stage, key.bucket));
  return *found;
}

MemoryPlan MemoryPlan::with_padding(const RowPadding& padding) const {
  MemoryPlan plan = *this;
  plan.padding_ = padding;
  return plan;
}

std::int64_t MemoryPlan::peak_bytes(MemoryCategory category) const {
  return peak_of(buffers_,
                 [&](const PlannedBuffer& buffer) {
                   if (category == MemoryCategory::padding) return buffer.padding_bytes;
                   if (category == MemoryCategory::padding_rows) return padding_.bytes(buffer.rows);
                   if (category != buffer.category) return std::int64_t{0};
                   return buffer.num_bytes - buffer.padding_bytes - padding_.bytes(buffer.rows);
                 })
      .num_bytes;
}

std::int64_t MemoryPlan::peak_padding_bytes(MemoryCategory category) const {
  return peak_of(
             buffers_,
             [&](const PlannedBuffer& buffer) { return category == buffer.category ? padding_.bytes(buffer.rows) : 0; })
      .num_bytes;
}

std::map<MemoryCategory, std::int64_t> MemoryPlan::bytes_at_peak() const {
  const int at_peak = peak_of(buffers_, [](const PlannedBuffer& buffer) { return buffer.num_bytes; }).action;
  std::map<MemoryCategory, std::int64_t> held;
  for (const PlannedBuffer& buffer : buffers_) {
    if (!is_persistent(buffer) && (at_peak < buffer.first_action || buffer.last_action < at_peak)) continue;
    const std::int64_t of_rows = padding_.bytes(buffer.rows);
    held[buffer.category] += buffer.num_bytes - buffer.padding_bytes - of_rows;
    if (buffer.padding_bytes > 0) held[MemoryCategory::padding] += buffer.padding_bytes;
    if (of_rows > 0) held[MemoryCategory::padding_rows] += of_rows;
  }
  return held;
}

}  // namespace echelon
