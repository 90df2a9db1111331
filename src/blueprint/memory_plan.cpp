#include "blueprint/memory_plan.h"

#include "base/error.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

bool is_persistent(const PlannedBuffer& buffer) { return buffer.first_action == always; }

bool live_together(const PlannedBuffer& a, const PlannedBuffer& b) { return a.first_action <= b.last_action && b.first_action <= a.last_action; }

/// The transient buffers that have their place. Those of a long program are also listed by windows of time, so that a buffer that lives shortly is held against
/// the few that may meet it.
class PlacedBuffers {
 public:
  explicit PlacedBuffers(int num_actions) : windows_(static_cast<std::size_t>(num_actions / width + 1)) {}

  /// The lowest offset at or above `base` where `buffer` meets none that lives at the same time.
  [[nodiscard]] std::int64_t lowest_free_offset(const PlannedBuffer& buffer, std::int64_t base) const {
    std::int64_t offset = base;
    for (const PlannedBuffer* other : candidates(buffer)) {
      if (!live_together(buffer, *other)) continue;
      if (other->offset >= offset + buffer.num_bytes) break;
      offset = std::max(offset, other->offset + other->num_bytes);
    }
    return offset;
  }

  void insert(const PlannedBuffer& buffer) {
    insert(buffer, all_);
    for (int window = std::max(0, buffer.first_action / width - 1); window <= buffer.last_action / width; ++window)
      insert(buffer, windows_[static_cast<std::size_t>(window)]);
  }

 private:
  using List = std::vector<const PlannedBuffer*>;  // by offset

  static void insert(const PlannedBuffer& buffer, List& list) {
    const auto above = std::upper_bound(list.begin(), list.end(), buffer.offset, [](std::int64_t offset, const auto* other) { return offset < other->offset; });
    list.insert(above, &buffer);
  }

  [[nodiscard]] const List& candidates(const PlannedBuffer& buffer) const {
    if (buffer.last_action - buffer.first_action >= width) return all_;
    return windows_[static_cast<std::size_t>(buffer.first_action / width)];
  }

  static constexpr int width = 1024;  // actions
  List all_;
  std::vector<List> windows_;  // [i]: those that live during some of the actions [i width, (i + 2) width)
};

}  // namespace

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::parameters: return "parameters";
    case MemoryCategory::gradients: return "gradients";
    case MemoryCategory::master_weights: return "master_weights";
    case MemoryCategory::moments: return "moments";
    case MemoryCategory::padding: return "padding";
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
  for (auto c = MemoryCategory::parameters; c <= MemoryCategory::unreduced_gradients; c = static_cast<MemoryCategory>(static_cast<int>(c) + 1))
    categories.push_back(c);
  return categories;
}

MemoryPlan::MemoryPlan(std::vector<PlannedBuffer> buffers) : buffers_(std::move(buffers)) {
  std::erase_if(buffers_, [](const PlannedBuffer& buffer) { return buffer.num_bytes == 0; });
  std::stable_sort(buffers_.begin(), buffers_.end(), [](const PlannedBuffer& a, const PlannedBuffer& b) {
    if (is_persistent(a) != is_persistent(b)) return is_persistent(a);
    return !is_persistent(a) && a.num_bytes > b.num_bytes;
  });
  std::int64_t persistent_bytes = 0;
  int last_action = 0;
  for (const PlannedBuffer& buffer : buffers_) last_action = std::max(last_action, buffer.last_action);
  PlacedBuffers placed(last_action);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    PlannedBuffer& buffer = buffers_[i];
    index_[buffer.key] = i;
    if (is_persistent(buffer)) {
      buffer.offset = persistent_bytes;
      persistent_bytes += buffer.num_bytes;
    } else {
      buffer.offset = placed.lowest_free_offset(buffer, persistent_bytes);
      placed.insert(buffer);
    }
    num_bytes_ = std::max(num_bytes_, buffer.offset + buffer.num_bytes);
  }
}

const PlannedBuffer& MemoryPlan::at(BufferKey key) const {
  const auto found = index_.find(key);
  if (found == index_.end())
    throw Failure(
        fmt::format("the memory plan has no buffer of role {} index {} stage {} bucket {}", static_cast<int>(key.role), key.index, key.stage, key.bucket));
  return buffers_[found->second];
}

std::int64_t MemoryPlan::peak_bytes(MemoryCategory category) const {
  std::int64_t persistent = 0;
  std::map<int, std::int64_t> changes;  // action -> bytes that begin or, one action behind their last, end
  for (const PlannedBuffer& buffer : buffers_) {
    if (category == MemoryCategory::padding) persistent += buffer.padding_bytes;
    if (buffer.category != category) continue;
    if (is_persistent(buffer)) {
      persistent += buffer.num_bytes - buffer.padding_bytes;
    } else {
      changes[buffer.first_action] += buffer.num_bytes;
      changes[buffer.last_action + 1] -= buffer.num_bytes;
    }
  }
  std::int64_t live = 0, peak = 0;
  for (const auto& [action, bytes] : changes) peak = std::max(peak, live += bytes);
  return persistent + peak;
}

std::map<MemoryCategory, std::int64_t> MemoryPlan::bytes_at_peak() const {
  std::map<int, std::int64_t> changes;  // as above
  for (const PlannedBuffer& buffer : buffers_) {
    if (is_persistent(buffer)) continue;
    changes[buffer.first_action] += buffer.num_bytes;
    changes[buffer.last_action + 1] -= buffer.num_bytes;
  }
  std::int64_t live = 0, peak = 0;
  int fullest = 0;
  for (const auto& [action, bytes] : changes) {
    live += bytes;
    if (live > peak) peak = live, fullest = action;
  }
  std::map<MemoryCategory, std::int64_t> held;
  for (const PlannedBuffer& buffer : buffers_) {
    if (!is_persistent(buffer) && (fullest < buffer.first_action || buffer.last_action < fullest)) continue;
    held[buffer.category] += buffer.num_bytes - buffer.padding_bytes;
    if (buffer.padding_bytes > 0) held[MemoryCategory::padding] += buffer.padding_bytes;
  }
  return held;
}

}  // namespace echelon
