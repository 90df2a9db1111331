// A rank's part of the model, bound to its memory: initial values, loading and saving.
#pragma once

#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/state/manifest.h"
#include "engine/rank_memory.h"
#include "executor/model_part.h"

namespace echelon {

class RankModel {
 public:
  /// Binds every parameter, gradient and moment to the planned memory. Values are zero until initialize() or load().
  RankModel(const Blueprint& blueprint, int rank, RankMemory& memory, Ops& ops);

  [[nodiscard]] ModelPart& part() { return part_; }
  [[nodiscard]] const ModelPart& part() const { return part_; }
  /// Values that depend on the parameter's global name and index alone, so that any layout starts from the same model.
  void initialize(std::int64_t seed, Ops& ops, int num_threads = 1);
  void load(const ModelReader& reader, Ops& ops);
  /// Of the adapters alone, which load() leaves as they are: initial values, or those of a folder, with the modules
  /// that are trained whole.
  void initialize_adapters(std::int64_t seed, Ops& ops);
  void load_adapters(const AdapterReader& reader, Ops& ops);
  /// Writes the trained slices that this rank is responsible for, if any. Sharded parameters are gathered unit by unit,
  /// in the buffers of the evaluation program. So every rank calls it, and no program may be running. Throws Failure,
  /// but only after the gathers of all units, in which the other ranks need this one.
  void save(ModelWriter& writer, Ops& ops, Mesh& mesh);
  /// What routers know of the step before; of other sizes, or empty: as before the first step.
  void set_routers(const SavedRouters& routers, Ops& ops);
  /// Master weights become the values that there are.
  void refresh_masters(Ops& ops);

 private:
  void gather(ShardedUnit& unit, Ops& ops, Mesh& mesh);

  [[nodiscard]] Tensor router_tensor(BufferRole role, DType dtype, const Sizes& sizes);

  ModelPart part_;
  RankMemory& memory_;
};

}  // namespace echelon
