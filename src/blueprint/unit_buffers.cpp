#include "blueprint/unit_buffers.h"

#include <map>
#include <utility>

namespace echelon {
namespace {

class UnitBuffers {
 public:
  explicit UnitBuffers(const ModelPart& part) : part_(part) {}

  void add(const Action& action) {
    const std::pair place = {action.stage, action.unit};
    switch (action.kind) {
      case ActionKind::gather_parameters: gathered_[place] = action.id; return;
      case ActionKind::release_parameters: return add_gathered(action, gathered_.at(place));
      case ActionKind::open_gradients: opened_[place] = action.id; return;
      case ActionKind::reduce_gradients: reduced_[place] = action.id; return;
      case ActionKind::store_gradients: return add_gradients(action, reduced_.at(place));
      case ActionKind::reduce_parts: return add_converted_parts(action);
      case ActionKind::load_batch:
      case ActionKind::clear_gradients:
      case ActionKind::count_tokens:
      case ActionKind::receive_forward:
      case ActionKind::forward:
      case ActionKind::send_forward:
      case ActionKind::receive_backward:
      case ActionKind::backward:
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
      case ActionKind::send_backward:
      case ActionKind::sum_replicas:
      case ActionKind::sum_tied:
      case ActionKind::clip:
      case ActionKind::update:
      case ActionKind::report: return;
    }
  }

  std::vector<PlannedBuffer> list() { return std::move(buffers_); }

 private:
  struct Life {
    BufferRole role;
    int first, last;  // actions
  };

  void add_gathered(const Action& release, int gather) {
    const ShardedUnit& unit = part_.unit(release);
    add_buffers(unit, {BufferRole::gathered_param, gather, release.id}, MemoryCategory::gathered_parameters,
                size_of(unit.options().dtype));
  }

  void add_gradients(const Action& store, int reduce) {
    const ShardedUnit& unit = part_.unit(store);
    const ShardOptions& options = unit.options();
    if (options.shards_gradients()) {
      const Life life = {BufferRole::unreduced_grad, opened_.at({store.stage, store.unit}),
                         options.converts_gradients() ? reduce : store.id};
      add_buffers(unit, life, MemoryCategory::unreduced_gradients, size_of(options.grad_dtype));
    }
    if (options.converts_gradients())
      add_buffers(unit, {BufferRole::converted_grad, reduce, store.id}, MemoryCategory::unreduced_gradients,
                  size_of(options.reduce_dtype));
  }

  void add_converted_parts(const Action& reduce) {
    const ShardedUnit& unit = part_.unit(reduce);
    if (!unit.options().converts_gradients()) return;
    const Life life = {BufferRole::converted_grad, reduce.id, reduce.id};
    for (std::size_t b = 0; b < unit.buckets().size(); ++b)
      add_buffer(life, b, MemoryCategory::unreduced_gradients,
                 unit.buckets()[b].owned().count * size_of(unit.options().reduce_dtype));
  }

  void add_buffers(const ShardedUnit& unit, const Life& life, MemoryCategory category, std::int64_t element_size) {
    for (std::size_t b = 0; b < unit.buckets().size(); ++b)
      add_buffer(life, b, category, unit.buckets()[b].num_elements * element_size);
  }

  void add_buffer(const Life& life, std::size_t bucket, MemoryCategory category, std::int64_t num_bytes) {
    buffers_.push_back({.key = {life.role, life.first, 0, static_cast<int>(bucket)},
                        .category = category,
                        .num_bytes = aligned(num_bytes),
                        .first_action = life.first,
                        .last_action = life.last});
  }

  const ModelPart& part_;
  std::map<std::pair<int, int>, int> gathered_, opened_, reduced_;  // (stage, unit) -> the last such action
  std::vector<PlannedBuffer> buffers_;
};

}  // namespace

std::vector<PlannedBuffer> unit_buffers(const Program& program, const ModelPart& part) {
  UnitBuffers buffers(part);
  for (const Action& action : program) buffers.add(action);
  return buffers.list();
}

}  // namespace echelon
