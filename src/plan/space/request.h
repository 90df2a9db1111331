// What `echelon plan` is asked for.
#pragma once

#include "base/clock.h"
#include "plan/space/training_request.h"
#include "predict/documents/document_loads.h"
#include "predict/software/software_profile.h"
#include "spec/config/run_config.h"
#include "spec/machine/machine_spec.h"

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

inline constexpr std::int64_t most_devices = 1 << 20;  // as of a degree

enum class PlanObjective : std::uint8_t {
  time,    // seconds of a step
  memory,  // the highest memory use of a rank, then seconds
  cost,    // price of a token, over all numbers of devices that divide the one asked for
};
[[nodiscard]] std::string_view name_of(PlanObjective objective);
[[nodiscard]] PlanObjective parse_plan_objective(std::string_view key, std::string_view name);

struct PlanRequest {
  RunConfig base;       // the model, the batch and all that is not chosen; and the values of the keys that are fixed
  MachineSpec machine;  // with the rates of the profile
  SoftwareProfile profile = {};
  std::int64_t num_devices = 1;
  std::int64_t fewest_devices = 1;  // of a list of numbers of devices that ends with num_devices
  bool chooses_dtype = false;       // base.training.dtype is the machine's fastest, since none was named
  // Keys that keep their value of `base`: "parallelism.tensor_parallel_degree", ...
  std::set<std::string, std::less<>> fixed = {};
  PlanObjective objective = PlanObjective::time;
  int top = 5;            // plans that are wanted, of different tensor, pipeline and data degrees
  double within = 0;      // a plan is good enough when no other can be better by more than this part of it
  std::int64_t work = 0;  // of a search, before it is content with good plans; 0: as much as it takes to be sure
  double seconds = 0;  // that a search may take before it is content with good plans; 0: as long as it takes to be sure
  std::function<double()> clock = now_seconds;        // of these seconds and those that are reported
  std::optional<TrainingRequest> long_training = {};  // whose days are asked for
  // Of the sequences, where attention ends at documents; null: sequences are timed whole. Copies of a request, which
  // ask for the same, share what was counted. None on a host, whose ranks differ.
  std::shared_ptr<DocumentLoads> documents = nullptr;
  std::string note = {};  // what of the model differs from its preset, since the question asks for it

  [[nodiscard]] bool fixes(std::string_view key) const { return fixed.contains(key); }
};

/// The words of a command line.
struct PlanQuestion {
  std::string model;    // a preset, a Hugging Face folder, or a config file whose parallelism is left aside
  std::string machine;  // a name or a file; empty: the one that the config names (metrics.machine), else this_machine
  std::optional<std::int64_t> gpus, global_batch_size, seq_len;
  std::string profile = "echelon";  // of other software: Echelon at its rates
  std::string objective = "time";
  std::int64_t top = 5;
  std::optional<double> price = {};  // of a device and hour; else the machine's
  double within_percent = 0;
  // 10 s of one core of an Intel Xeon (Granite Rapids) in the largest search; as long again where there is no proof.
  std::int64_t work = 80'000'000;
  double seconds = 0;
  std::string expert_load = {};  // read_expert_load; empty: balanced
  // --section.key=value: what the planner would choose is fixed by them.
  std::vector<std::string> settings = {};
  std::function<ModelSpec(const std::string& folder)> read_model = {};  // of a Hugging Face folder
  std::function<MachineSpec()> this_machine = {};                       // empty: a machine must be named
  // What training.device = auto stands for on a machine of devices.
  DeviceChoice device = DeviceChoice::cuda;
  TrainingQuestion training = {};
  std::optional<std::int64_t> fewest_gpus = {};  // where a list of numbers of devices starts; `gpus` ends it
};

/// Throws Error naming the flag, its value and a value that works.
[[nodiscard]] PlanRequest read_plan_request(const PlanQuestion& question);

/// Whether the planner chooses the key's value where it is not fixed.
[[nodiscard]] bool is_chosen(std::string_view key);
/// Makes a choice of the planner: "--parallelism.zero_level=3". Throws Error for a key that is none.
void fix_choice(const std::string& setting, PlanRequest& request);

}  // namespace echelon
