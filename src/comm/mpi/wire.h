// Notes and messages between processes over MPI. The receive of a message is posted before it is sent, so MPI never
// buffers unexpected data, and no message waits for another one. Where processes can read each other's memory, data
// need no message.
#pragma once

#include "comm/mpi/note.h"
#include "comm/mpi/peer_memory.h"

#include <mpi.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace echelon {

/// What goes through a Wire is at most this long.
inline constexpr std::int64_t most_message_bytes = 1 << 30;

class Wire {
 public:
  using Deliver = std::function<void(const Note& note, const std::byte* payload)>;

  explicit Wire(MPI_Comm comm);
  /// Completes all pending MPI requests; collective.
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// Copies the note and its payload: note.num_bytes of an eager note or an answer.
  void send_note(int rank, const Note& note, const std::byte* payload);

  /// Posts the receive of a message from `rank` and returns its place (tag), which is free again afterwards. *num_left
  /// is decremented when the message has arrived.
  [[nodiscard]] int open_place(int rank, std::byte* data, std::int64_t num_bytes, int* num_left);
  /// Sends into a place of `rank`; *num_left is decremented when the data may change again.
  void send(int rank, int place, const std::byte* data, std::int64_t num_bytes, int* num_left);

  /// Sets whose memory is read, of the ranks whose memory can be; both processes of a pair set the same. Operations in
  /// progress keep their way.
  void read_memory_of(const std::function<bool(int rank)>& reads);
  [[nodiscard]] bool reads_memory_of(int rank) const { return reads_memory_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const PeerMemory& memory() const { return memory_; }

  /// Delivers the notes that have arrived, in order per sender, and counts messages that have ended. True if there were
  /// any.
  bool progress(const Deliver& deliver);
  /// Of these the notes alone. After an operation was dropped, nothing may count its messages.
  bool take_notes(const Deliver& deliver);

 private:
  struct Flight {
    int* num_left = nullptr;                       // of a message
    std::unique_ptr<std::vector<std::byte>> note;  // of a note, which keeps its bytes
  };
  void track(MPI_Request request, Flight flight);
  bool finish_flights();
  void end(Flight& flight);
  [[nodiscard]] std::unique_ptr<std::vector<std::byte>> note_buffer();

  MPI_Comm comm_;
  PeerMemory memory_;
  std::vector<bool> reads_memory_;     // by rank
  int num_places_;                     // tags of messages are 1 .. num_places_; notes have tag 0
  std::vector<int> next_place_;        // by rank
  std::vector<MPI_Request> requests_;  // parallel to flights_
  std::vector<Flight> flights_;
  std::vector<int> ended_;  // scratch
  std::vector<std::unique_ptr<std::vector<std::byte>>> unused_notes_;
  std::vector<std::vector<std::byte>> inbox_;  // buffers of receives that are always posted, taken in turn
  std::vector<MPI_Request> inbox_requests_;
  std::size_t next_in_inbox_ = 0;
};

}  // namespace echelon
