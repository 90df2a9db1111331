// What processes write to each other besides data: small notes, which a process takes at any time, whatever it waits
// for.
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
  push,        // small data, which every rank may send unasked, since nobody finishes the operation without it
  invitation,  // a place for data is open: send that part of your flow
  offer,       // that part of the sender's flow lies in its memory: take it
  taken,       // the flow may change up to here
  greeting,    // the sender has started the operation; where else it would wait for peers that may wait for others
  question,    // a rank waits for long: what do you wait for?
  answer,
};

struct Note {
  NoteKind kind = NoteKind::push;
  std::uint8_t phase = 0;  // which of the operation's flows between the two ranks
  int source = 0;          // ranks of the mesh
  OperationId id;
  Signature signature;
  std::int64_t offset = 0;     // in the flow, of what is invited, offered or taken
  std::int64_t num_bytes = 0;  // of that, or of what follows the note
  std::uint64_t place = 0;     // of an invitation; an address, of an offer
};
static_assert(std::is_trivially_copyable_v<Note>);

// Open MPI sends up to 4 KiB at once within a node, its own header included.
inline constexpr std::int64_t most_note_bytes = 4000;
inline constexpr std::int64_t most_pushed_bytes = most_note_bytes - static_cast<std::int64_t>(sizeof(Note));

}  // namespace echelon
