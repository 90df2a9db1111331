#include "verify/gradient/explain_kv_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace echelon {
namespace {

class KvPartExplainer {
 public:
  KvPartExplainer(const Case& at, std::int64_t step, const Activations& expected, const FirstWrongRead& first)
      : at_(at),
        step_(step),
        first_(first),
        parts_(*expected.of(name())),
        all_columns_(at.config().model.num_key_value_heads * at.config().model.head_dim),
        num_replicas_(parts_.num_columns / all_columns_) {}

  [[nodiscard]] std::vector<Finding> explain() const {
    if (all_wrong_are([](double, double) { return 0.0; })) {
      const std::set<std::int64_t> missing = replicas_of(first_.wrong), right = replicas_of(first_.others);
      const std::string others =
          right.size() == 1
              ? fmt::format("it has the part from the query heads of replica {} alone", *right.begin())
              : fmt::format("the part from the query heads of replica {} is zero", fmt::join(missing, ", of replica "));
      return {finding(FaultKind::one_replica,
                      fmt::format("of the {} ranks that share each kv head, {}", num_replicas_, others))};
    }
    if (all_wrong_are([](double, double sum) { return sum; }))
      return {
          finding(FaultKind::repeated_sum,
                  fmt::format("each of the {} ranks that share a kv head has the parts of all, which are summed once "
                              "more",
                              num_replicas_))};
    return {};
  }

 private:
  [[nodiscard]] const ReadName& name() const { return first_.wrong.front().read.name; }
  [[nodiscard]] std::int64_t replica_of(const Read& read) const { return read.first_column / all_columns_; }
  [[nodiscard]] std::set<std::int64_t> replicas_of(const std::vector<WrongRead>& reads) const {
    std::set<std::int64_t> replicas;
    for (const WrongRead& each : reads) replicas.insert(replica_of(each.read));
    return replicas;
  }

  /// Whether every value of the wrong reads is `value` of the rank's own part and the sum of all.
  template <class Value>
  [[nodiscard]] bool all_wrong_are(const Value& value) const {
    const double most = parts_.largest * at_.tolerance;
    return std::ranges::all_of(first_.wrong, [&](const WrongRead& wrong) {
      const Read& read = wrong.read;
      for (std::size_t i = 0; i < read.values.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / read.num_columns,
                   column = read.first_column % all_columns_ + static_cast<std::int64_t>(i) % read.num_columns;
        const std::int64_t token = read.tokens[static_cast<std::size_t>(row)];
        if (token == no_token) continue;
        double sum = 0;
        for (std::int64_t replica = 0; replica < num_replicas_; ++replica)
          sum += parts_.row(token)[replica * all_columns_ + column];
        const double own = parts_.row(token)[replica_of(read) * all_columns_ + column];
        if (!(std::abs(read.values[i] - value(own, sum)) <= most)) return false;
      }
      return true;
    });
  }

  [[nodiscard]] Finding finding(FaultKind kind, const std::string& evidence) const {
    return {.kind = kind,
            .axis = "tp",
            .tensor = name().tensor,
            .where = describe_read(at_, step_, first_),
            .evidence = evidence};
  }

  const Case& at_;
  std::int64_t step_;
  const FirstWrongRead& first_;
  const Activation& parts_;
  std::int64_t all_columns_, num_replicas_;
};

}  // namespace

std::vector<Finding> explain_kv_parts(const Case& at, std::int64_t step, const Activations& expected,
                                      const FirstWrongRead& first) {
  if (!is_of_kv_parts(first.wrong.front().read.name)) return {};
  return KvPartExplainer(at, step, expected, first).explain();
}

}  // namespace echelon
