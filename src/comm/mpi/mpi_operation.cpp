#include "comm/mpi/mpi_operation.h"

#include <algorithm>
#include <cstring>
#include <exception>

namespace echelon {
namespace {

constexpr std::int64_t copy_chunk_bytes = 4 << 20;

void copy(std::byte* out, const std::byte* in, std::int64_t num_bytes) {
  if (out != in && num_bytes > 0) std::memcpy(out, in, static_cast<std::size_t>(num_bytes));
}

template <class Flow>
Flow* find(std::vector<Flow>& flows, int peer, int phase) {
  const auto found = std::find_if(flows.begin(), flows.end(),
                                  [&](const Flow& flow) { return flow.peer() == peer && flow.phase() == phase; });
  return found == flows.end() ? nullptr : &*found;
}

}  // namespace

MpiOperation::MpiOperation(MpiMesh& mesh, MpiGroup& group, std::uint64_t channel, const Signature& signature,
                           std::int64_t& sent_bytes)
    : mesh_(mesh),
      group_(group),
      signature_(signature),
      id_(group.start(channel, signature)),
      context_{.wire = mesh.wire(),
               .header = {.source = mesh.rank(), .id = id_, .signature = signature},
               .sent_bytes = sent_bytes} {
  mesh_.add(*this);
}

MpiOperation::~MpiOperation() {
  const bool unwinds = std::uncaught_exceptions() > 0;
  mesh_.remove(*this, unwinds);
  if (!was_waited_for_ && !unwinds)  // a missing wait is found even if it happens to be done
    mesh_.abort(fmt::format("rank {} dropped, without waiting for it, its {}", mesh_.rank(), description()));
}

void MpiOperation::start(const PartyBuffers& buffers) {
  signature_.has_parts ? make_flows_of_rows(buffers) : make_flows(buffers.in, buffers.out);
  // Two ranks with different roots would wait forever.
  const bool only_answers = signature_.kind == CommKind::broadcast && !send_flows_.empty();
  for (std::size_t i = 0; only_answers && i < send_flows_.size(); ++i) context_.announce_start(send_flows_[i].peer());
  mesh_.deliver_early_notes(*this);
  mesh_.advance(*this);
}

void MpiOperation::make_flows(const std::byte* in, std::byte* out) {
  const int n = static_cast<int>(group_.ranks().size()), own = group_.place();
  const std::int64_t size = size_of(signature_.dtype), num_bytes = signature_.num_elements * size,
                     part_bytes = num_bytes / n;
  const auto own_part = owned_range(signature_.num_elements, own, n);
  for (int place = 0; place < n; ++place) {
    const bool is_peer = place != own;
    switch (signature_.kind) {
      case CommKind::all_gather:
        is_peer ? add_receive_flow(place, 0, out + place * part_bytes, part_bytes)
                : copy(out + own * part_bytes, in, part_bytes);
        if (is_peer) add_send_flow(place, 0, in, part_bytes);
        break;
      case CommKind::all_to_all:
        is_peer ? add_receive_flow(place, 0, out + place * part_bytes, part_bytes)
                : copy(out + own * part_bytes, in + own * part_bytes, part_bytes);
        if (is_peer) add_send_flow(place, 0, in + place * part_bytes, part_bytes);
        break;
      case CommKind::reduce_scatter:
        if (is_peer) add_send_flow(place, 0, in + place * part_bytes, part_bytes);
        break;
      case CommKind::all_reduce: {
        if (!is_peer) break;
        const OwnedRange part = owned_range(signature_.num_elements, place, n);
        add_send_flow(place, 0, in + part.first * size, part.count * size);
        add_send_flow(place, 1, out + own_part.first * size, own_part.count * size);
        add_receive_flow(place, 1, out + part.first * size, part.count * size);
        break;
      }
      case CommKind::broadcast:
        if (own == signature_.root && is_peer) add_send_flow(place, 0, in, num_bytes);
        if (place == signature_.root && is_peer) add_receive_flow(place, 0, out, num_bytes);
        break;
      case CommKind::barrier:
        if (is_peer) add_send_flow(place, 0, nullptr, 0);
        if (is_peer) add_receive_flow(place, 0, nullptr, 0);
        break;
      case CommKind::send:
      case CommKind::receive:
        if (is_peer && id_.channel == MpiGroup::channel_of(own, place)) add_send_flow(place, 0, in, num_bytes);
        if (is_peer && id_.channel == MpiGroup::channel_of(place, own)) add_receive_flow(place, 0, out, num_bytes);
        break;
    }
  }
  if (signature_.kind == CommKind::reduce_scatter && part_bytes > 0)
    reduction_.emplace(context_, group_.ranks(), own, in + own * part_bytes, out, part_bytes);
  if (signature_.kind == CommKind::all_reduce && own_part.count > 0)
    reduction_.emplace(context_, group_.ranks(), own, in + own_part.first * size, out + own_part.first * size,
                       own_part.count * size);
}

void MpiOperation::make_flows_of_rows(const PartyBuffers& buffers) {
  const int n = static_cast<int>(group_.ranks().size()), own = group_.place();
  const std::int64_t row_bytes = signature_.num_elements * size_of(signature_.dtype);
  for (int place = 0; place < n; ++place) {
    const RowPart &sent = buffers.in_parts[place], &received = buffers.out_parts[place];
    const std::byte* const in = buffers.in + sent.first * row_bytes;
    std::byte* const out = buffers.out + received.first * row_bytes;
    if (place == own) {
      copy(out, in, sent.count * row_bytes);
      continue;
    }
    add_receive_flow(place, 0, out, received.count * row_bytes);
    add_send_flow(place, 0, in, sent.count * row_bytes);
  }
}

void MpiOperation::add_send_flow(int place, int phase, const std::byte* data, std::int64_t num_bytes) {
  const int peer = group_.ranks()[static_cast<std::size_t>(place)];
  if (num_bytes > 0 || signature_.kind == CommKind::barrier)
    send_flows_.emplace_back(peer, phase, data, num_bytes, way_of(mesh_.wire(), signature_.kind, peer, num_bytes));
}

void MpiOperation::add_receive_flow(int place, int phase, std::byte* data, std::int64_t num_bytes) {
  const int peer = group_.ranks()[static_cast<std::size_t>(place)];
  if (num_bytes > 0 || signature_.kind == CommKind::barrier)
    receive_flows_.emplace_back(peer, phase, data, num_bytes, way_of(mesh_.wire(), signature_.kind, peer, num_bytes));
}

void MpiOperation::take(const Note& note, const std::byte* payload) {
  if (note.signature != signature_) throw Failure(mesh_.describe_mismatch(group_, note, signature_));
  if (std::find(heard_of_.begin(), heard_of_.end(), note.source) == heard_of_.end()) heard_of_.push_back(note.source);
  if (note.kind == NoteKind::started) return;
  if (note.kind == NoteKind::clear_to_send || note.kind == NoteKind::acknowledgement) {
    if (SendFlow* const flow = find(send_flows_, note.source, note.phase)) flow->take(note);
  } else if (note.phase == 0 && reduction_) {
    reduction_->take(note, payload);
  } else if (ReceiveFlow* const flow = find(receive_flows_, note.source, note.phase)) {
    flow->take(note, payload);
  }
}

// An all_reduce sends the sum as far as it is computed, and receives a peer's sum where this rank's own values have
// been sent.
void MpiOperation::set_limits() {
  if (signature_.kind != CommKind::all_reduce) return;
  for (SendFlow& flow : send_flows_)
    if (flow.phase() == 1) flow.limit(reduction_ ? reduction_->num_summed_bytes() : 0);
  for (ReceiveFlow& flow : receive_flows_) flow.limit(find(send_flows_, flow.peer(), 0)->num_sent());
}

bool MpiOperation::advance() {
  if (is_done_) return false;
  bool can_go_on = reduction_ && reduction_->advance(context_);
  for (int phase = 0; phase < 2; ++phase) {
    set_limits();
    for (SendFlow& flow : send_flows_)
      if (flow.phase() == phase) flow.advance(context_);
  }
  const std::int64_t chunk_bytes = signature_.kind == CommKind::all_reduce
                                       ? Reduction::chunk_bytes(static_cast<int>(group_.ranks().size()))
                                       : copy_chunk_bytes;
  for (ReceiveFlow& flow : receive_flows_) can_go_on = flow.advance(context_, chunk_bytes) || can_go_on;
  is_done_ =
      (!reduction_ || reduction_->is_done()) &&
      std::all_of(send_flows_.begin(), send_flows_.end(), [](const SendFlow& flow) { return flow.is_done(); }) &&
      std::all_of(receive_flows_.begin(), receive_flows_.end(), [](const ReceiveFlow& flow) { return flow.is_done(); });
  return can_go_on;
}

void MpiOperation::wait() {
  const auto turn = mesh_.take_turn();
  if (!is_done_) mesh_.wait_for(*this);
  leave();
}

bool MpiOperation::poll() {
  const auto turn = mesh_.take_turn();
  if (!is_done_) mesh_.poll();
  if (is_done_) leave();
  return is_done_;
}

void MpiOperation::leave() { was_waited_for_ = true; }

std::vector<int> MpiOperation::missing() const {
  std::vector<int> missing = reduction_ ? reduction_->missing() : std::vector<int>();
  for (const SendFlow& flow : send_flows_)
    if (!flow.is_done()) missing.push_back(flow.peer());
  for (const ReceiveFlow& flow : receive_flows_)
    if (!flow.is_done()) missing.push_back(flow.peer());
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

bool MpiOperation::has_heard_of(int rank) const {
  return std::find(heard_of_.begin(), heard_of_.end(), rank) != heard_of_.end();
}

std::string MpiOperation::description() const { return group_.describe(id_, signature_, mesh_.rank()); }

}  // namespace echelon
