// What the emulated device is made of; for the emulation's own files.
#pragma once

#include "cuda/emulated/runtime.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace emulated {

/// A piece of captured work, and the numbers of those that end before it begins.
struct Node {
  std::function<DueWork()> begin;
  std::vector<std::size_t> after;
};
struct Graph {
  std::vector<Node> nodes;  // in the order in which they were enqueued
};

/// From cudaStreamBeginCapture to cudaStreamEndCapture.
struct Capture {
  Stream* origin = nullptr;
  std::thread::id thread;
  std::set<Stream*> streams;  // origin, and those that have waited for an event of it
  Graph graph;
  bool is_valid = true;
  bool has_ended = false;
};

/// One launch of a graph: its nodes run one by one, in any order that keeps their edges. CUDA does not promise that any
/// of them run beside each other, so one that has been chosen is waited for, whatever else could run.
class GraphRun {
 public:
  explicit GraphRun(const Graph& graph);
  [[nodiscard]] bool can_go_on();
  /// What runs next; only where it can go on and is not over.
  [[nodiscard]] DueWork take();
  [[nodiscard]] bool is_over() const { return num_taken_ == works_.size(); }

 private:
  [[nodiscard]] bool is_next(std::size_t node) const;
  std::vector<DueWork> works_;
  std::vector<std::vector<std::size_t>> after_;
  std::vector<bool> is_taken_;
  std::optional<std::size_t> chosen_;
  std::size_t num_taken_ = 0;
};

struct Mark {
  long num_records = 0, num_done = 0;  // records enqueued, and reached by their streams
  std::chrono::steady_clock::time_point when;
};
/// May be destroyed before its streams have come to it.
struct Event {
  std::shared_ptr<Mark> mark = std::make_shared<Mark>();
  std::shared_ptr<Capture> capture;        // of its last record, if that was captured; then also:
  std::vector<std::size_t> stands_behind;  // nodes of the capture
};

/// Work of a stream, or a record of an event, or a wait for one's record, or a graph.
struct Task {
  DueWork work;
  std::shared_ptr<Mark> record = {}, awaited = {};
  long number = 0;  // of the record
  std::shared_ptr<GraphRun> graph = {};
};

struct Stream {
  int device = 0;
  std::deque<Task> tasks;
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> stands_behind;  // nodes of the capture, behind which the next one is
  bool is_destroyed = false;               // by its owner: it goes when its work is done
};

struct Machine {
  std::recursive_mutex mutex;
  std::set<Stream*> streams;
  std::map<std::byte*, std::size_t> device_memory, pinned_memory;  // with the bytes that were asked for
  std::map<const void*, std::size_t> shared_bytes;
  struct Asked {
    std::size_t num_bytes = 0;
    int device = 0;
  };
  std::map<const void*, Asked> asked;                // of device memory
  std::size_t memory_bytes = std::size_t{80} << 30;  // of each device
  int num_devices = 1;
  int num_islands = 1;
  int capability = 90;
  int num_multiprocessors = 4;
  int most_shared_bytes = 227 * 1024;
  cudaError_t start_error = cudaSuccess;
  std::size_t num_waiting = 0;
  bool waits_for_loads = false;
  std::set<std::pair<int, const void*>> loaded;  // by device
  std::map<int, int> num_loading;                // calls that hold the lock of a device's context
  Activity activity;
  long num_until_failure = 0;        // pieces of work; 0: none fails
  cudaError_t sticky = cudaSuccess;  // an error of the device, which stays
  std::string sticky_text;
};
[[nodiscard]] Machine& machine();
using Lock = std::lock_guard<std::recursive_mutex>;

/// What a call returns: this, or what is wrong with the device.
cudaError_t result(cudaError_t error);
/// From now on the device is broken.
void break_down(const char* reason);
/// Runs later, or is captured.
cudaError_t push(Stream& stream, std::function<DueWork()> begin);
void push(Stream& stream, Task task);

/// The capture that is not to be continued, and `error`.
cudaError_t spoil(Capture& capture, cudaError_t error);
/// cudaSuccess, or what a call returns that this thread may not make while it captures; the capture is spoiled then.
cudaError_t refuse_while_capturing();
/// Likewise of calls that ask about a stream or an event: of a captured one nothing is known.
cudaError_t refuse_if_captured(const std::shared_ptr<Capture>& capture, cudaError_t error);
cudaError_t capture_work(Stream& stream, std::function<DueWork()> begin);
cudaError_t capture_record(const Stream& stream, Event& event);
cudaError_t capture_wait(Stream& stream, Event& event);

}  // namespace emulated
