// A rank's work as a CUDA graph: captured from the compute stream and those of communication that wait for it and that
// it waits for, then launched as one.
#pragma once

#include "backend/work_recorder.h"
#include "cuda/comm/nccl_mesh.h"
#include "ops/ops.h"

namespace echelon::cuda {

class GraphRecorder final : public WorkRecorder {
 public:
  /// For a rank that has its GPU to itself; `mesh` is null if it is alone. All of them must outlive it.
  GraphRecorder(Device& device, Ops& ops, NcclMesh* mesh);
  ~GraphRecorder() override;
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;

  void begin() override;
  void end() override;
  void cancel() noexcept override;
  void replay() override;

 private:
  void end_capture() noexcept;
  void forget() noexcept;

  Device& device_;
  Ops& ops_;
  NcclMesh* mesh_;
  bool is_capturing_ = false;
  cudaGraphExec_t instance_ = nullptr;
};

}  // namespace echelon::cuda
