// Captures and graphs: what is enqueued on a captured stream, and on those that wait for its events, becomes a node
// behind the ones before, and none of it runs until the graph is launched. Calls that would have to wait spoil the
// capture, as they do in CUDA under cudaStreamCaptureModeThreadLocal, the mode that is played: other threads may do
// what they like.
#include "cuda/emulated/machine.h"

#include <algorithm>

namespace emulated {
namespace {

thread_local std::shared_ptr<Capture> captured_here;

bool is_active(const std::shared_ptr<Capture>& capture) { return capture != nullptr && !capture->has_ended; }

void add_to(std::vector<std::size_t>& nodes, const std::vector<std::size_t>& others) {
  nodes.insert(nodes.end(), others.begin(), others.end());
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

/// Whether the origin waits, in the end, for all that other streams were given.
bool is_joined(const Capture& capture) {
  std::vector<bool> is_awaited(capture.graph.nodes.size(), false);
  for (const std::size_t node : capture.origin->stands_behind) is_awaited[node] = true;
  for (std::size_t node = capture.graph.nodes.size(); node-- > 0;)  // edges point backwards
    if (is_awaited[node])
      for (const std::size_t before : capture.graph.nodes[node].after) is_awaited[before] = true;
  return std::find(is_awaited.begin(), is_awaited.end(), false) == is_awaited.end();
}

}  // namespace

GraphRun::GraphRun(const Graph& graph) : is_taken_(graph.nodes.size(), false) {
  for (const Node& node : graph.nodes) {
    works_.push_back(node.begin());
    after_.push_back(node.after);
  }
}

bool GraphRun::is_next(std::size_t node) const {
  const auto has_run = [&](std::size_t before) { return is_taken_[before]; };
  return !is_taken_[node] && std::all_of(after_[node].begin(), after_[node].end(), has_run);
}

bool GraphRun::can_go_on() {
  if (is_over()) return true;
  if (!chosen_) {
    std::vector<std::size_t> next;
    for (std::size_t node = 0; node < works_.size(); ++node)
      if (is_next(node)) next.push_back(node);
    chosen_ = next[draw(next.size())];
  }
  return !works_[*chosen_].is_due || works_[*chosen_].is_due();
}

DueWork GraphRun::take() {
  const std::size_t node = *std::exchange(chosen_, {});
  is_taken_[node] = true;
  ++num_taken_;
  return std::exchange(works_[node], {});
}

cudaError_t spoil(Capture& capture, cudaError_t error) {
  capture.is_valid = false;
  return result(error);
}

cudaError_t refuse_while_capturing() {
  return is_active(captured_here) ? spoil(*captured_here, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t refuse_if_captured(const std::shared_ptr<Capture>& capture, cudaError_t error) {
  if (const cudaError_t refused = refuse_while_capturing(); refused != cudaSuccess) return refused;
  return capture != nullptr ? spoil(*capture, error) : cudaSuccess;
}

cudaError_t capture_work(Stream& stream, std::function<DueWork()> begin) {
  Capture& capture = *stream.capture;
  if (!capture.is_valid) return result(cudaErrorStreamCaptureInvalidated);
  capture.graph.nodes.push_back({std::move(begin), stream.stands_behind});
  stream.stands_behind = {capture.graph.nodes.size() - 1};
  return result(cudaSuccess);
}

cudaError_t capture_record(const Stream& stream, Event& event) {
  if (!stream.capture->is_valid) return result(cudaErrorStreamCaptureInvalidated);
  event.capture = stream.capture;
  event.stands_behind = stream.stands_behind;
  return result(cudaSuccess);
}

// One of the two is captured, or both are.
cudaError_t capture_wait(Stream& stream, Event& event) {
  if (event.capture == nullptr)
    return event.mark->num_records == 0 ? result(cudaSuccess) : spoil(*stream.capture, cudaErrorStreamCaptureIsolation);
  if (event.capture->has_ended) return result(cudaErrorCapturedEvent);
  if (!event.capture->is_valid) return result(cudaErrorStreamCaptureInvalidated);
  if (stream.capture != nullptr && stream.capture != event.capture) {
    stream.capture->is_valid = false;
    return spoil(*event.capture, cudaErrorStreamCaptureMerge);
  }
  stream.capture = event.capture;
  stream.capture->streams.insert(&stream);
  add_to(stream.stands_behind, event.stands_behind);
  return result(cudaSuccess);
}

}  // namespace emulated

using namespace emulated;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock(machine().mutex);
  if (mode != cudaStreamCaptureModeThreadLocal) return result(cudaErrorInvalidValue);  // the others are not played
  if (stream->capture != nullptr || is_active(captured_here)) return result(cudaErrorIllegalState);
  captured_here = stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->streams.insert(stream);
  return result(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(machine().mutex);
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return result(cudaErrorIllegalState);
  if (capture->thread != std::this_thread::get_id()) return result(cudaErrorStreamCaptureWrongThread);
  if (capture->origin != stream) return spoil(*capture, cudaErrorStreamCaptureUnmatched);
  const bool all_are_joined = is_joined(*capture);
  for (Stream* each : capture->streams) {
    each->capture.reset();
    each->stands_behind.clear();
  }
  capture->has_ended = true;
  captured_here.reset();
  Graph captured = std::exchange(capture->graph, {});  // events may refer to the capture for long
  if (!capture->is_valid) return result(cudaErrorStreamCaptureInvalidated);
  if (!all_are_joined) return result(cudaErrorStreamCaptureUnjoined);
  ++machine().activity.num_captures;
  *graph = new Graph(std::move(captured));
  return result(cudaSuccess);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock(machine().mutex);
  const bool is_valid = stream->capture != nullptr && stream->capture->is_valid;
  *status = is_valid                     ? cudaStreamCaptureStatusActive
            : stream->capture != nullptr ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusNone;
  return result(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long /*flags*/) {
  *instance = new Graph(*graph);
  return result(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
  const Lock lock(machine().mutex);
  // Graphs in graphs are not played.
  if (stream->capture != nullptr) return spoil(*stream->capture, cudaErrorStreamCaptureUnsupported);
  ++machine().activity.num_graph_launches;
  try {
    push(*stream, Task{.work = {}, .graph = std::make_shared<GraphRun>(*instance)});
  } catch (const std::exception& error) {
    break_down(error.what());
  }
  return result(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  delete instance;  // a launch has what it needs
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
