// A simulation as text for people and as JSON for machines.
#pragma once

#include "predict/documents/document_load.h"
#include "predict/saving/predicted_save.h"
#include "predict/simulation/failures.h"
#include "predict/simulation/simulate.h"
#include "report/html/timeline_drawing.h"

#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>

namespace echelon {

struct SimulatedRun {
  const Blueprint& blueprint;
  const Simulation& result;
  const MachineSpec& machine_spec;  // with the rates of the profile
  std::string machine = {};
  SoftwareProfile profile = {};
  std::optional<FailureModel> failures = {};
  std::map<int, double> slow_ranks = {};  // factors of their compute time
  std::optional<PredictedSave> save = {};
  std::optional<DocumentLoad> documents = {};  // whose attention is timed
  DocumentOffsets first_sequence = {};         // of these documents
};

[[nodiscard]] std::string to_text(const SimulatedRun& run);
[[nodiscard]] nlohmann::ordered_json to_json(const SimulatedRun& run);

/// "stage 3", plus the rank and the number of ranks that it represents if replicas differ.
[[nodiscard]] std::vector<DrawnRank> drawn_ranks(const SimulatedRun& run);

}  // namespace echelon
