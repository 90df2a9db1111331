// Work of a rank that is written down once and then enqueued as a whole, as often as wanted: on a GPU a CUDA graph.
#pragma once

namespace echelon {

class WorkRecorder {
 public:
  virtual ~WorkRecorder() = default;
  /// What is enqueued from now on, communication too, is written down and does not run. Nobody may wait for any of it,
  /// upload or download.
  virtual void begin() = 0;
  /// All that was started since begin() has been waited for. Throws Failure if it cannot be replayed.
  virtual void end() = 0;
  /// After a failure since begin(): what is enqueued from now on runs again.
  virtual void abandon() noexcept = 0;
  /// Enqueues all that was written down last. It finds in memory what is there when it runs. Ranks whose work talks to
  /// each other replay equally often.
  virtual void replay() = 0;
};

}  // namespace echelon
