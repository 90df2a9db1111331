// Notes and messages between processes over MPI. A message goes into a place that its receiver has opened before, so
// MPI never keeps data that nobody asked for, and no message waits behind another one. Where processes can read one
// another's memory, data need no message.
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
  /// Ends what MPI has under way; collective.
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// Copies the note and what follows it: note.num_bytes of a push or an answer.
  void send_note(int rank, const Note& note, const std::byte* payload);

  /// Opens a place for a message from `rank` and returns its number, which is free again afterwards. *num_left is
  /// decremented when the message has come.
  [[nodiscard]] int open_place(int rank, std::byte* data, std::int64_t num_bytes, int* num_left);
  /// Sends into a place of `rank`; *num_left is decremented when the data may change again.
  void send(int rank, int place, const std::byte* data, std::int64_t num_bytes, int* num_left);

  /// Whose memory is to be read of those that can be; two processes do alike. For what is under way it stays as it was.
  void read_memory_of(const std::function<bool(int rank)>& reads);
  [[nodiscard]] bool reads_memory_of(int rank) const { return reads_memory_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const PeerMemory& memory() const { return memory_; }

  /// Delivers notes that have come, in order per sender, and counts messages that have ended; true if there was
  /// anything.
  bool progress(const Deliver& deliver);

 private:
  struct Flight {
    int* num_left = nullptr;                       // of a message
    std::unique_ptr<std::vector<std::byte>> note;  // of a note, which keeps its bytes
  };
  void track(MPI_Request request, Flight flight);
  bool finish_flights();
  bool take_notes(const Deliver& deliver);
  void end(Flight& flight);
  [[nodiscard]] std::unique_ptr<std::vector<std::byte>> note_buffer();

  MPI_Comm comm_;
  PeerMemory memory_;
  std::vector<bool> reads_memory_;     // by rank
  int num_places_;                     // tags of messages are 1 .. num_places_; notes have tag 0
  std::vector<int> next_place_;        // by rank
  std::vector<MPI_Request> requests_;  // beside flights_
  std::vector<Flight> flights_;
  std::vector<int> ended_;  // scratch
  std::vector<std::unique_ptr<std::vector<std::byte>>> unused_notes_;
  std::vector<std::vector<std::byte>> inbox_;  // buffers of receives that are always posted, taken in turn
  std::vector<MPI_Request> inbox_requests_;
  std::size_t next_in_inbox_ = 0;
};

}  // namespace echelon
