// Follows a run of a layout or a training run. Everything does nothing by default: an observer overrides what it needs.
#pragma once

#include "engine/rank_run.h"
#include "report/operation_table.h"
#include "report/step_report.h"

#include <filesystem>

namespace echelon {

/// One rank of a run.
struct RankView {
  RankRun& run;
  Mesh& mesh;
  Ops& ops;
};

struct TraceReport {
  std::filesystem::path folder;  // rank{r}_trace.json and rank{r}_operations.json of every rank
  OperationTable table;          // of rank 0
  std::int64_t step = 0;         // the last one that was traced,
  Timeline timeline = {};        // as rank 0's pipeline ran it; Event::rank is the rank along the pipeline
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;

  // Called by every rank of this process, on that rank's thread.

  /// The weights have their initial values.
  virtual void starts(const RankView& /*rank*/) {}
  /// The gradients of a step are reduced; times `factor` they are those of the mean loss. train() does not call it: a
  /// step whose gradients are observed waits for its device and is not replayed as a graph.
  virtual void has_gradients(const RankView& /*rank*/, std::int64_t /*step*/, double /*factor*/) {}
  virtual void ended_step(const RankView& /*rank*/, std::int64_t /*step*/, const StepResult& /*result*/) {}
  virtual void ends(const RankView& /*rank*/) {}

  // Called by train() alone, for the whole run, on one thread at a time: before ranks start, then on rank 0's thread.

  /// A line about what is run, where and with what.
  virtual void described(const std::string& /*line*/) {}
  /// The numbers of a checkpoint are loaded.
  virtual void resumed(std::int64_t /*step*/, const std::filesystem::path& /*from*/) {}
  /// Something failed, and the run continues.
  virtual void warned(const std::string& /*sentence*/) {}
  virtual void reported(const StepReport& /*report*/) {}
  virtual void validated(const EvaluationReport& /*report*/) {}
  /// A model.
  virtual void saved(const std::filesystem::path& /*folder*/) {}
  /// A checkpoint, how long it took until the run knew that it is durable, and whether training waited for that.
  virtual void saved_state(const std::filesystem::path& folder, double /*seconds*/, bool /*has_waited*/) {
    saved(folder);
  }
  /// After the last traced step.
  virtual void traced(const TraceReport& /*trace*/) {}
};

}  // namespace echelon
