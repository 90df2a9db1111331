// A mesh around another one that measures each call into the transport: starting an operation, waiting for it, polling.
#pragma once

#include "comm/mesh.h"
#include "comm/traffic.h"

#include <functional>
#include <map>
#include <memory>
#include <utility>

namespace echelon {

struct TimedCall {
  enum class Phase : std::uint8_t { start, wait, poll };
  Phase phase = Phase::start;
  CommKind kind = CommKind::barrier;  // not of a poll, which advances all operations
  Group group = {};                   // likewise
  RowPurpose purpose = RowPurpose::other;
  std::int64_t num_bytes = 0;  // of the full buffer
  double start = 0, end = 0;   // as of now_seconds()
  double under_way_since = 0;  // of a wait: when the operation was started
};
[[nodiscard]] std::string_view name_of(TimedCall::Phase phase);

class TimedMesh final : public Mesh {
 public:
  using Listener = std::function<void(const TimedCall& call)>;

  /// `inner` must outlive it. The listener is called after each call, on the thread that made it.
  TimedMesh(Mesh& inner, Listener listener);
  ~TimedMesh() override;

  [[nodiscard]] Comm& comm(const Group& group) override;
  void together(const std::function<void()>& start) override { inner_.together(start); }
  void poll() override;
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return inner_.sent_bytes(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  void enter_layer(std::string_view layer) override {
    Mesh::enter_layer(layer);
    inner_.enter_layer(layer);
  }
  void enter_part(LayerPart part) override {
    Mesh::enter_part(part);
    inner_.enter_part(part);
  }

 private:
  class TimedComm;

  Mesh& inner_;
  Listener listener_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
};

}  // namespace echelon
