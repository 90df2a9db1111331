#include "cuda/graph_recorder.h"

#include <utility>

namespace echelon::cuda {

GraphRecorder::GraphRecorder(Device& device, Ops& ops, NcclMesh* mesh) : device_(device), ops_(ops), mesh_(mesh) {
  if (mesh_ == nullptr) return;
  mesh_->hold_graphs([this] {
    end_capture();
    forget();
  });
}

GraphRecorder::~GraphRecorder() {
  if (mesh_ != nullptr) mesh_->hold_graphs({});
  forget();
}

// A launch in progress runs to its end.
void GraphRecorder::forget() noexcept {
  if (instance_ != nullptr) cudaGraphExecDestroy(std::exchange(instance_, nullptr));
}

void GraphRecorder::end_capture() noexcept {
  if (!std::exchange(is_capturing_, false)) return;
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(device_.compute().get(), &graph) == cudaSuccess) cudaGraphDestroy(graph);
  (void)cudaGetLastError();
}

// Other threads, which other ranks and libraries may have, are free to call what would have to wait.
void GraphRecorder::begin() {
  forget();
  ops_.publish();
  if (mesh_ != nullptr) mesh_->begin_recording();
  check(cudaStreamBeginCapture(device_.compute().get(), cudaStreamCaptureModeThreadLocal), "the start of a capture");
  is_capturing_ = true;
}

void GraphRecorder::end() {
  ops_.publish();
  cudaGraph_t graph = nullptr;
  is_capturing_ = false;
  check(cudaStreamEndCapture(device_.compute().get(), &graph), "the capture of a step");
  const cudaError_t error = cudaGraphInstantiate(&instance_, graph, 0);
  cudaGraphDestroy(graph);
  check(error, "the graph of a step");
  if (mesh_ != nullptr) mesh_->end_recording();
}

void GraphRecorder::cancel() noexcept {
  end_capture();
  if (mesh_ != nullptr) mesh_->cancel_recording();
}

void GraphRecorder::replay() {
  check(cudaGraphLaunch(instance_, device_.compute().get()), "the launch of a step's graph");
  if (mesh_ != nullptr) mesh_->replayed();
}

}  // namespace echelon::cuda
