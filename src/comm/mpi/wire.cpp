#include "comm/mpi/wire.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr int note_tag = 0;
constexpr std::size_t num_inbox_buffers = 64;

int most_tag(MPI_Comm comm) {
  void* value = nullptr;
  int is_set = 0;
  MPI_Comm_get_attr(comm, MPI_TAG_UB, &value, &is_set);
  return is_set != 0 ? *static_cast<int*>(value) : 32767;
}

int size_of_comm(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

}  // namespace

Wire::Wire(MPI_Comm comm)
    : comm_(comm),
      memory_(comm),
      reads_memory_(static_cast<std::size_t>(size_of_comm(comm)), false),
      num_places_(std::min(most_tag(comm), 1 << 20)),
      next_place_(static_cast<std::size_t>(size_of_comm(comm)), 0),
      inbox_(num_inbox_buffers, std::vector<std::byte>(most_note_bytes)),
      inbox_requests_(num_inbox_buffers, MPI_REQUEST_NULL) {
  for (std::size_t i = 0; i < num_inbox_buffers; ++i) {
    MPI_Recv_init(inbox_[i].data(), static_cast<int>(most_note_bytes), MPI_BYTE, MPI_ANY_SOURCE, note_tag, comm_,
                  &inbox_requests_[i]);
    MPI_Start(&inbox_requests_[i]);
  }
}

Wire::~Wire() {
  MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  MPI_Barrier(comm_);  // no note is in flight any more
  for (MPI_Request& request : inbox_requests_) {
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
  }
}

void Wire::send_note(int rank, const Note& note, const std::byte* payload) {
  const bool carries = note.kind == NoteKind::eager || note.kind == NoteKind::answer;
  const std::size_t num_bytes = carries ? static_cast<std::size_t>(note.num_bytes) : 0;
  auto buffer = note_buffer();
  std::memcpy(buffer->data(), &note, sizeof(Note));
  if (num_bytes > 0) std::memcpy(buffer->data() + sizeof(Note), payload, num_bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(buffer->data(), static_cast<int>(sizeof(Note) + num_bytes), MPI_BYTE, rank, note_tag, comm_, &request);
  track(request, {.num_left = nullptr, .note = std::move(buffer)});
}

// A peer's places are used in turn. There are many more of them than messages in flight between two ranks.
int Wire::open_place(int rank, std::byte* data, std::int64_t num_bytes, int* num_left) {
  int& next = next_place_[static_cast<std::size_t>(rank)];
  next = next % num_places_ + 1;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(data, static_cast<int>(num_bytes), MPI_BYTE, rank, next, comm_, &request);
  track(request, {.num_left = num_left, .note = nullptr});
  return next;
}

void Wire::send(int rank, int place, const std::byte* data, std::int64_t num_bytes, int* num_left) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(data, static_cast<int>(num_bytes), MPI_BYTE, rank, place, comm_, &request);
  track(request, {.num_left = num_left, .note = nullptr});
}

void Wire::read_memory_of(const std::function<bool(int)>& reads) {
  for (std::size_t rank = 0; rank < reads_memory_.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    reads_memory_[rank] = memory_.reaches(peer) && reads(peer);
  }
}

bool Wire::progress(const Deliver& deliver) {
  const bool has_ended = finish_flights();
  return take_notes(deliver) || has_ended;
}

void Wire::track(MPI_Request request, Flight flight) {
  requests_.push_back(request);
  flights_.push_back(std::move(flight));
}

bool Wire::finish_flights() {
  if (requests_.empty()) return false;
  ended_.resize(requests_.size());
  int num_ended = 0;
  MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &num_ended, ended_.data(), MPI_STATUSES_IGNORE);
  if (num_ended <= 0) return false;
  std::sort(ended_.begin(), ended_.begin() + num_ended, std::greater<>());
  bool was_message = false;
  for (int i = 0; i < num_ended; ++i) {
    const auto place = static_cast<std::size_t>(ended_[static_cast<std::size_t>(i)]);
    was_message = was_message || flights_[place].num_left != nullptr;
    end(flights_[place]);
    requests_[place] = requests_.back();
    if (place + 1 < flights_.size()) flights_[place] = std::move(flights_.back());
    requests_.pop_back();
    flights_.pop_back();
  }
  return was_message;
}

void Wire::end(Flight& flight) {
  if (flight.num_left != nullptr) --*flight.num_left;
  if (flight.note) unused_notes_.push_back(std::move(flight.note));
}

// MPI fills the posted buffers in order, so testing only the next one keeps the order.
bool Wire::take_notes(const Deliver& deliver) {
  bool took = false;
  for (std::size_t i = 0; i < num_inbox_buffers; ++i) {
    MPI_Request& request = inbox_requests_[next_in_inbox_];
    int has_come = 0;
    MPI_Test(&request, &has_come, MPI_STATUS_IGNORE);
    if (has_come == 0) break;
    const std::vector<std::byte>& buffer = inbox_[next_in_inbox_];
    next_in_inbox_ = (next_in_inbox_ + 1) % num_inbox_buffers;
    Note note;
    std::memcpy(&note, buffer.data(), sizeof(Note));
    deliver(note, buffer.data() + sizeof(Note));
    MPI_Start(&request);
    took = true;
  }
  return took;
}

std::unique_ptr<std::vector<std::byte>> Wire::note_buffer() {
  if (unused_notes_.empty()) return std::make_unique<std::vector<std::byte>>(most_note_bytes);
  auto buffer = std::move(unused_notes_.back());
  unused_notes_.pop_back();
  return buffer;
}

}  // namespace echelon
