// All that one rank of a run owns, made from the blueprint.
#pragma once

#include "engine/step.h"

namespace echelon {

class RankRun {
 public:
  RankRun(const Blueprint& blueprint, Mesh& mesh, Ops& ops, MemorySpace& space = host_memory(),
          WorkRecorder* recorder = nullptr, MemorySpace& space_of_host = host_memory())
      : blueprint_(blueprint.rank(mesh.rank())),
        memory_(blueprint_, space, space_of_host),
        model_(blueprint, mesh.rank(), memory_, ops),
        step_(blueprint, blueprint_, {memory_, model_, ops, mesh, recorder}) {}

  [[nodiscard]] const RankBlueprint& blueprint() const { return blueprint_; }
  [[nodiscard]] RankMemory& memory() { return memory_; }
  [[nodiscard]] RankModel& model() { return model_; }
  [[nodiscard]] Step& step() { return step_; }

 private:
  RankBlueprint blueprint_;
  RankMemory memory_;
  RankModel model_;
  Step step_;
};

}  // namespace echelon
