// Control messages between processes: small notes, which a process receives at any time, whatever it waits for.
#pragma once

#include "comm/signature.h"

#include <compare>
#include <cstddef>
#include <type_traits>

namespace echelon {

/// The same on all ranks that take part in an operation.
struct OperationId {
  std::uint64_t group = 0;    // a hash of its ranks
  std::uint64_t channel = 0;  // 0: the group's collectives; else one of its (source, destination)
  std::int64_t sequence = 0;  // the q-th operation of this channel
  std::int64_t run = 0;       // the r-th mesh of this process
  auto operator<=>(const OperationId&) const = default;
};

enum class NoteKind : std::uint8_t {
  eager,            // small data, sent unasked, since no rank finishes the operation without it
  clear_to_send,    // a receive is posted: send that part of your flow
  offer,            // that part of the sender's flow is ready in its memory: read it
  acknowledgement,  // the flow may change up to here
  started,          // the sender has started the operation
  question,         // a rank has waited for long: what do you wait for?
  answer,
  job_ends,  // the sender will say why
};

struct Note {
  NoteKind kind = NoteKind::eager;
  std::uint8_t phase = 0;  // which of the operation's flows between the two ranks
  int source = 0;          // ranks of the mesh
  OperationId id;
  Signature signature;
  std::int64_t offset = 0;     // in the flow, of the data granted, offered or acknowledged
  std::int64_t num_bytes = 0;  // of that, or of what follows the note
  std::uint64_t place = 0;     // of a clear_to_send; of an offer, an address
};
static_assert(std::is_trivially_copyable_v<Note>);

// Open MPI sends up to 4 KiB at once within a node, its own header included.
inline constexpr std::int64_t most_note_bytes = 4000;
inline constexpr std::int64_t most_eager_bytes = most_note_bytes - static_cast<std::int64_t>(sizeof(Note));

}  // namespace echelon
