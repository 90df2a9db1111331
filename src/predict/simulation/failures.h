// What failures cost: a job that fails at random, is restarted from its last checkpoint, and pays for every checkpoint.
//
//   J. W. Young, A first order approximation to the optimum checkpoint interval, Communications of the ACM 17 (1974)
//   J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
//   Computer Systems 22 (2006)
#pragma once

namespace echelon {

struct FailureModel {
  // Mean time between failures of the whole job; failures come independently of each other (exponential).
  double mtbf_seconds = 0;
  double checkpoint_seconds = 0;  // in which training is stopped
  double restart_seconds = 0;     // from a failure until training continues, from the last checkpoint
};

/// The fraction of the time that is training which is not lost, with a checkpoint after every `interval_seconds` of
/// training (Daly 2006: the expected wall time of a solution time tau). With M, delta and R as above and any interval
/// tau, also beyond M:
///   tau / (M e^(R/M) (e^((tau + delta)/M) - 1))
[[nodiscard]] double goodput(const FailureModel& failures, double interval_seconds);

/// sqrt(2 delta M), Young 1974: good while delta is far below M.
[[nodiscard]] double young_interval_seconds(const FailureModel& failures);
/// Daly's estimate: sqrt(2 delta M) (1 + 1/3 sqrt(delta/(2 M)) + delta/(18 M)) - delta below delta = 2 M, and M from
/// there on.
[[nodiscard]] double daly_interval_seconds(const FailureModel& failures);
/// Where goodput is greatest: the root of e^((tau + delta)/M) (1 - tau/M) = 1, by bisection. Without checkpoint cost it
/// is 0.
[[nodiscard]] double best_interval_seconds(const FailureModel& failures);

}  // namespace echelon
