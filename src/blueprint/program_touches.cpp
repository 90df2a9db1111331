#include "blueprint/program_touches.h"

#include "executor/action_executor.h"
#include "executor/unit_state.h"
#include "tensor/arena.h"

#include <algorithm>

namespace echelon {
namespace {

class PlannedAddresses final : public Buffers {
 public:
  PlannedAddresses(const MemoryPlan& plan, const Arena& arena) : plan_(plan), arena_(arena) {}

  [[nodiscard]] Tensor tensor(BufferKey key, DType dtype, const Sizes& sizes) override {
    if (sizes.num_elements() == 0) return {nullptr, dtype, sizes};
    return arena_.tensor(plan_.at(key).offset, dtype, sizes);
  }
  [[nodiscard]] Stack region(BufferKey key) override {
    if (!plan_.contains(key)) return {nullptr, 0};
    const PlannedBuffer& buffer = plan_.at(key);
    return arena_.region(buffer.offset, buffer.num_bytes);
  }
  void note_use(BufferKey /*key*/, const RegionUse& /*use*/) override {}

 private:
  const MemoryPlan& plan_;
  const Arena& arena_;
};

/// Tells the listener of the current run what is performed and waited for.
class Teller final : public CommListener {
 public:
  Teller(const Arena& arena, TraceOps& ops, TraceMesh& mesh) : base_(arena.tensor(0, DType::float32, {1}).data) {
    ops.listen_to_operands([this](const Operands& operands) {
      touches_.clear();
      for (const std::vector<Tensor>* const tensors : {&operands.reads, &operands.overwrites})
        for (const Tensor& tensor : *tensors) add(tensor);
    });
    ops.listen([this](const OpRecord& record) {
      if (listener_ != nullptr) listener_->performed(record, touches_);
    });
    mesh.listen(*this);
  }
  void tell(TouchListener& listener) { listener_ = &listener; }

  void started(const CommRecord& record) override {
    group_sizes_.push_back(record.group_size);
    if (listener_ != nullptr) listener_->started(record);
  }
  void waited(std::size_t start) override {
    if (group_sizes_[start] > 1 && listener_ != nullptr) listener_->waited();
  }

 private:
  void add(const Tensor& tensor) {
    if (tensor.data == nullptr || tensor.num_elements() == 0) return;
    const Touch touch = {tensor.data - base_, tensor.num_bytes()};
    if (std::find(touches_.begin(), touches_.end(), touch) == touches_.end()) touches_.push_back(touch);
  }

  const std::byte* base_;
  TouchListener* listener_ = nullptr;
  std::vector<Touch> touches_;
  std::vector<int> group_sizes_;  // of what was started
};

}  // namespace

void execute_on_addresses(const Blueprint& blueprint, const RankBlueprint& rank, ProgramKind kind,
                          std::span<TouchListener* const> runs, ExpertLoads* loads) {
  const RunConfig& config = blueprint.config();
  const Arena arena(rank.arena_bytes(), bare_addresses());
  PlannedAddresses buffers(rank.memory(kind), arena);
  ModelPart part = make_model_part(config, blueprint.schedule(), rank.rank());
  TraceOps ops;
  TraceMesh mesh(blueprint.mesh(), rank.rank());
  Teller teller(arena, ops, mesh);
  ActionExecutor executor(config, {part, ops, mesh});
  StepValues values;
  values.trains = is_training(kind);
  values.has_loss_scale = part.options.dtype == DType::float16;
  values.expert_loads = loads;
  const Program& program = rank.program(kind);
  bind_state(part, buffers);
  bind_rope(part, ops, buffers);
  for (TouchListener* const listener : runs) {
    teller.tell(*listener);
    executor.start(buffers, values);
    std::vector<std::vector<Pending>> in_progress(program.size());
    for (const Action& action : program) {
      for (const int id : action.after)
        for (Pending& pending : std::exchange(in_progress[static_cast<std::size_t>(id)], {})) pending.wait();
      listener->begins(action);
      in_progress[static_cast<std::size_t>(action.id)] = executor.perform(action);
    }
  }
}

}  // namespace echelon
