#include "schedule/check/check_parameters.h"

#include "base/error.h"
#include "schedule/lowering/unit_passes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace echelon {
namespace {

using Kind = ActionKind;

class ParameterCheck {
 public:
  ParameterCheck(int rank, const Program& program, const LoweringOptions& options)
      : rank_(rank), program_(program), options_(options) {
    for (const Action& action : program)
      if (is_compute(action.kind)) passes_.push_back(action.id);
    for (const int id : passes_)
      for (const UnitKey& key : units_of(program[id], options)) {
        uses_[key].push_back(id);
        last_use_[{key, program[id].microbatch}] = id;
      }
  }

  std::vector<std::string> run() {
    for (const Action& action : program_) {
      if (action.kind == Kind::gather_parameters) gather(action);
      if (action.kind == Kind::release_parameters) release(action);
      if (is_compute(action.kind)) compute(action);
    }
    for (const auto& [key, copy] : copies_)
      if (copy.is_there) fault(program_[copy.gathered], "is never released");
    return std::move(faults_);
  }

 private:
  struct Copy {
    bool is_there = false;
    int gathered = -1, released = -1, last_user = -1;  // ids; last_user since it was gathered
    std::set<int> microbatches;                        // that have used the unit and will again
  };

  void gather(const Action& action) {
    Copy& copy = copies_[{action.stage, action.unit}];
    if (copy.is_there) fault(action, "comes while there is a copy");
    if (copy.released >= 0) demand(action, copy.released);
    copy = {.is_there = true, .gathered = action.id, .released = copy.released, .last_user = -1, .microbatches = {}};
  }

  void release(const Action& action) {
    Copy& copy = copies_[{action.stage, action.unit}];
    if (!copy.is_there) return fault(action, "has nothing to release");
    if (copy.last_user < 0) fault(action, "comes before any use");
    if (copy.last_user >= 0) demand(action, copy.last_user);
    copy.is_there = false;
    copy.released = action.id;
  }

  void compute(const Action& pass) {
    const std::vector<UnitKey> needed = units_of(pass, options_);
    for (const UnitKey& key : needed) {
      Copy& copy = copies_[key];
      if (!copy.is_there) {
        fault(pass, fmt::format("runs without the parameters of stage {} unit {}", key.stage, key.unit));
        continue;
      }
      if (copy.last_user < 0) demand(pass, copy.gathered);
      const auto place = std::lower_bound(passes_.begin(), passes_.end(), pass.id) - passes_.begin();
      const auto ahead = std::min<std::ptrdiff_t>(place, options_.prefetch_depth);
      if (copy.last_user < 0 && ahead > 0 && copy.gathered > passes_[static_cast<std::size_t>(place - ahead)])
        fault(program_[copy.gathered], fmt::format("is not {} ahead of its use", passes_of(options_.prefetch_depth)));
      copy.last_user = pass.id;
      copy.microbatches.insert(pass.microbatch);
      if (last_use_.at({key, pass.microbatch}) == pass.id) copy.microbatches.erase(pass.microbatch);
    }
    for (const auto& [key, copy] : copies_) {
      const bool is_needed = std::find(needed.begin(), needed.end(), key) != needed.end();
      if (copy.is_there && !is_needed && !may_stay(key, copy, pass.id))
        fault(pass, fmt::format("runs while the parameters of stage {} unit {} are gathered for nothing", key.stage,
                                key.unit));
    }
  }

  // Whether a copy may be there during a pass that does not use it: one of the next passes does, or it was used and is
  // kept for a later one.
  [[nodiscard]] bool may_stay(const UnitKey& key, const Copy& copy, int id) const {
    const std::vector<int>& uses = uses_.at(key);
    const auto next_use = std::upper_bound(uses.begin(), uses.end(), id);
    if (next_use == uses.end()) return false;
    const auto next = std::upper_bound(passes_.begin(), passes_.end(), id);
    if (std::lower_bound(next, passes_.end(), *next_use) - next < options_.prefetch_depth) return true;
    if (copy.last_user < 0) return false;
    switch (options_.keeps_gathered) {
      case KeepsGathered::for_next_pass: return false;
      case KeepsGathered::for_step: return true;
      case KeepsGathered::for_backward: return !copy.microbatches.empty();
    }
    return false;
  }

  static std::string passes_of(int depth) { return depth == 1 ? "a pass" : fmt::format("{} passes", depth); }
  void demand(const Action& reader, int id) {
    if (!std::binary_search(reader.after.begin(), reader.after.end(), id))
      fault(reader, fmt::format("does not wait for {}", to_string(program_[id])));
  }
  void fault(const Action& action, const std::string& what) {
    faults_.push_back(fmt::format("rank {}: {} {}", rank_, to_string(action), what));
  }

  int rank_;
  const Program& program_;
  const LoweringOptions& options_;
  std::vector<int> passes_;                          // ids, in order
  std::map<UnitKey, std::vector<int>> uses_;         // ids of passes, in order
  std::map<std::pair<UnitKey, int>, int> last_use_;  // by a microbatch
  std::map<UnitKey, Copy> copies_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> check_parameters(int rank, const Program& program, const LoweringOptions& options) {
  return options.shards_parameters ? ParameterCheck(rank, program, options).run() : std::vector<std::string>();
}

}  // namespace echelon
