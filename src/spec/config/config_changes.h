// In which keys two configs of a run differ, and what that means for resuming it.
#pragma once

#include "spec/config/run_config.h"

#include <string>
#include <vector>

namespace echelon {

enum class KeyEffect : std::uint8_t {
  none,    // layout, devices, intervals, logging: the values of training are the same, but for rounding
  values,  // such as the learning rate: training continues in another way
  data,    // which tokens a position of the data stands for
  model,   // another model, which cannot continue
};

struct KeyChange {
  std::string key;
  KeyEffect effect{};
  std::string was, is;  // in TOML syntax
};

/// The keys in which the configs differ, in the table's order. training.steps have no effect if the learning rate does
/// not decay. Paths of data have none: data is known by its content.
[[nodiscard]] std::vector<KeyChange> config_changes(const RunConfig& was, const RunConfig& is);
/// "optimizer.lr: was 0.001, is 0.0005".
[[nodiscard]] std::string to_text(const KeyChange& change);

}  // namespace echelon
