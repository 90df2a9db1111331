// What an MPI rank tells of its waits: to ranks that ask, after a timeout, and where ranks started different
// operations.
#include "comm/mpi/mpi_mesh.h"
#include "comm/mpi/mpi_operation.h"

#include <algorithm>

namespace echelon {

void MpiMesh::answer(int asker) {
  const WaitState state = {.text = describe_state(),
                           .waits_for = waits_for_ == nullptr ? std::vector<int>() : waits_for_->missing()};
  const std::vector<std::byte> bytes = state.to_bytes();
  Note note;
  note.kind = NoteKind::answer;
  note.source = rank();
  note.num_bytes = static_cast<std::int64_t>(bytes.size());
  wire().send_note(asker, note, bytes.data());
}

std::string MpiMesh::describe_state() const {
  const std::lock_guard lock(place_mutex_);
  const std::string place = place_in_model();
  if (waits_for_ == nullptr) return place.empty() ? "computes" : "computes in " + place;
  return fmt::format("waits in {}{} of {}", place.empty() ? "" : place + ", in ", waits_for_->description(),
                     waits_for_->group().name());
}

std::string MpiMesh::describe_timeout(const MpiOperation& operation, const StallDiagnosis& diagnosis) const {
  std::vector<int> late = operation.missing();
  std::erase_if(late, [&](int peer) { return operation.has_heard_of(peer); });
  const std::string culprits = late.empty()
                                   ? listed(operation.missing()) + " did not finish"
                                   : listed(late) + (late.size() == 1 ? " has not arrived" : " have not arrived");
  return fmt::format("{}: rank {} waited {} s (comm.timeout_seconds) for {}; {}{}", operation.group().name(), rank(),
                     timeout_seconds_, operation.description(), culprits, diagnosis.findings());
}

std::string MpiMesh::describe_mismatch(const MpiGroup& group, const Note& note, const Signature& own) const {
  return fmt::format("{}: as operation {}, rank {} started {} but rank {} started {}", group.name(),
                     note.id.sequence + 1, note.source, group.describe(note.id, note.signature, note.source), rank(),
                     group.describe(note.id, own, rank()));
}

}  // namespace echelon
