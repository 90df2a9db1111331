// What is refused, and why.
#pragma once

#include "parity/sweep/axes.h"

namespace echelon::testing {

[[nodiscard]] std::vector<Rule> refusals(const std::vector<SweepAxis>& axes);

/// Collects rules by the names of axes and settings.
class Refusals {
 public:
  explicit Refusals(const std::vector<SweepAxis>& axes) : axes_(axes) {}

  struct Part {
    std::string axis;
    std::vector<std::string> settings;  // empty: all
  };
  /// Axes and settings that the table lacks are left out. `when`: of the settings of these axes; empty: always.
  void add(const std::vector<Part>& parts, const std::string& key, const std::string& why,
           std::function<bool(const Draft&)> when = {});
  /// What follows from other rules: parts that the settings of no other axes go with.
  void add_consequence(const std::vector<Part>& parts, const std::string& why);
  /// The same of those pairs of settings of two axes `when` there are none.
  void add_consequences(const std::string& axis, const std::string& other, const std::string& why,
                        const std::function<bool(const Draft&)>& when);
  [[nodiscard]] bool has(const std::string& axis) const;
  [[nodiscard]] const std::vector<Rule>& rules() const { return rules_; }

 private:
  [[nodiscard]] Rule::Term term(const Part& part) const;

  const std::vector<SweepAxis>& axes_;
  std::vector<Rule> rules_;
};

/// What mixtures of experts refuse.
void refuse_experts(Refusals& refused);

}  // namespace echelon::testing
