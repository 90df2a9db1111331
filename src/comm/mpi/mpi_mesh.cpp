#include "comm/mpi/mpi_mesh.h"

#include "comm/mpi/backoff.h"
#include "comm/mpi/mpi_comm.h"
#include "comm/mpi/mpi_operation.h"
#include "comm/solo/solo_comm.h"

#include <algorithm>
#include <thread>

namespace echelon {

MpiMesh::MpiMesh(MpiProcess& process, const MeshShape& shape, std::int64_t run, double timeout_seconds)
    : Mesh(shape, process.rank()), process_(process), run_(run), timeout_seconds_(timeout_seconds) {
  const std::chrono::milliseconds period(process.has_own_core() ? 4 : 10);
  if (shape.num_ranks() > 1 && process.has_threads()) background_.emplace(period, [this] { progress_in_background(); });
}

MpiMesh::~MpiMesh() = default;

Comm& MpiMesh::comm(const Group& group) {
  const auto turn = take_turn();
  auto& comm = comms_[group];
  if (comm) return *comm;
  const std::vector<int> ranks = shape().ranks_of(group, rank());
  require(!ranks.empty(), "rank {} is in no group '{}'", rank(), name_of(group));
  std::int64_t& sent = sent_[group];  // also lists a group of one rank, which sends nothing
  if (ranks.size() == 1)
    comm = std::make_unique<SoloComm>();
  else
    comm = std::make_unique<MpiComm>(*this, group_of(group, ranks), sent);
  return *comm;
}

MpiGroup& MpiMesh::group_of(const Group& group, const std::vector<int>& ranks) {
  auto& shared = groups_[ranks];
  const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
  if (!shared) shared = std::make_unique<MpiGroup>(run_, name_of(group), ranks, static_cast<int>(place));
  return *shared;
}

void MpiMesh::poll() {
  constexpr int backoff = 64;
  const auto turn = take_turn();
  if (progress()) num_idle_polls_ = 0;
  if (++num_idle_polls_ % backoff == 0 && !process_.has_own_core())
    std::this_thread::sleep_for(std::chrono::microseconds(1));
}

std::map<Group, std::int64_t> MpiMesh::sent_bytes() const {
  const auto turn = take_turn();
  return sent_;
}

void MpiMesh::end_job(const std::string& sentence, ExitStatus status) {
  if (background_) background_->stop();
  announce_end();
  process_.end_job(sentence, status);
}

// Until the launcher has ended the others, they would blame this rank, which does not answer any more.
void MpiMesh::announce_end() {
  const std::unique_lock turn(turn_);
  if (has_announced_end_) return;
  wire().take_notes([](const Note& note, const std::byte*) {
    if (note.kind == NoteKind::job_ends) MpiProcess::await_end(note.source);
  });
  has_announced_end_ = true;
  Note note;
  note.kind = NoteKind::job_ends;
  note.source = rank();
  for (int peer = 0; peer < shape().num_ranks(); ++peer)
    if (peer != rank()) wire().send_note(peer, note, nullptr);
}

// Where the rank has the turn it is in MPI itself.
void MpiMesh::progress_in_background() {
  if (num_under_way_ == 0) return;
  std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn || failure_ || has_announced_end_) return;
  try {
    while (progress()) {
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void MpiMesh::add(MpiOperation& operation) {
  under_way_[operation.id()] = &operation;
  num_under_way_ = under_way_.size();
}

void MpiMesh::remove(const MpiOperation& operation, bool unwinds) {
  const std::unique_lock turn(turn_);
  if (unwinds && !operation.is_done()) announce_end();
  under_way_.erase(operation.id());
  num_under_way_ = under_way_.size();
}

void MpiMesh::deliver_early_notes(MpiOperation& operation) {
  for (const auto& early : process_.take_early_notes(operation.id())) operation.take(early.note, early.payload.data());
}

bool MpiMesh::progress() {
  const bool came = wire().progress([this](const Note& note, const std::byte* payload) { deliver(note, payload); });
  if (!came && !has_more_work_) return false;
  has_more_work_ = false;
  for (const auto& [id, operation] : under_way_) advance(*operation);
  return true;
}

void MpiMesh::advance(MpiOperation& operation) { has_more_work_ = operation.advance() || has_more_work_; }

void MpiMesh::deliver(const Note& note, const std::byte* payload) {
  switch (note.kind) {
    case NoteKind::question: return answer(note.source);
    case NoteKind::job_ends: MpiProcess::await_end(note.source);
    case NoteKind::answer:
      if (diagnosis_ != nullptr) diagnosis_->take(wire(), note.source, WaitState::from_bytes(payload, note.num_bytes));
      return;
    case NoteKind::eager:
    case NoteKind::clear_to_send:
    case NoteKind::offer:
    case NoteKind::acknowledgement:
    case NoteKind::started: break;
  }
  if (const auto found = under_way_.find(note.id); found != under_way_.end()) return found->second->take(note, payload);
  if (const MpiGroup* const group = note.id.run == run_ ? find_group(note.id.group) : nullptr;
      group != nullptr && group->has_started(note.id)) {
    const auto own = group->started(note.id);
    if (note.kind == NoteKind::started && note.signature == own.value_or(note.signature)) return;
    throw Failure(describe_mismatch(*group, note, own.value_or(Signature())));
  }
  const std::int64_t num_bytes = note.kind == NoteKind::eager ? note.num_bytes : 0;
  process_.early_notes(note.id).push_back({note, {payload, payload + num_bytes}});
}

const MpiGroup* MpiMesh::find_group(std::uint64_t hash) const {
  for (const auto& [ranks, group] : groups_)
    if (group->hash() == hash) return group.get();
  return nullptr;
}

/// What this rank waits for, until it does not, also where it fails: answers may come later.
class MpiMesh::Waiting {
 public:
  Waiting(MpiMesh& mesh, const MpiOperation& operation, StallDiagnosis& diagnosis) : mesh_(mesh) {
    mesh_.waits_for_ = &operation;
    mesh_.diagnosis_ = &diagnosis;
  }
  ~Waiting() {
    mesh_.waits_for_ = nullptr;
    mesh_.diagnosis_ = nullptr;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  MpiMesh& mesh_;
};

void MpiMesh::wait_for(const MpiOperation& operation) {
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  Backoff backoff(process_.has_own_core());
  StallDiagnosis diagnosis(rank());
  const Waiting waiting(*this, operation, diagnosis);
  while (!operation.is_done()) {
    if (progress()) {
      backoff.reset();
      continue;
    }
    if (!backoff.pause()) continue;
    const double seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
    if (seconds > timeout_seconds_ / 2) diagnosis.ask(wire(), operation.missing());
    const double turn = 0.05 * std::min(rank(), 20);  // so that usually one rank reports it for all
    if (seconds > timeout_seconds_ + turn) throw Failure(describe_timeout(operation, diagnosis));
  }
}

}  // namespace echelon
