// Work of a rank that is recorded once and then replayed as a whole any number of times: on a GPU a CUDA graph.
#pragma once

namespace echelon {

class WorkRecorder {
 public:
  virtual ~WorkRecorder() = default;
  /// From now on operations and communication are recorded and do not run. The caller must not wait for any of it,
  /// upload or download.
  virtual void begin() = 0;
  /// All that was started since begin() has been waited for. Throws Failure if it cannot be replayed.
  virtual void end() = 0;
  /// Ends the recording after a failure: what is enqueued from now on runs.
  virtual void cancel() noexcept = 0;
  /// Enqueues the last recording. It reads memory as it is when it runs. Ranks that communicate must replay equally
  /// often.
  virtual void replay() = 0;
};

}  // namespace echelon
