// Open sequences by the room that they have left, for best fit.
#pragma once

#include <cstdint>
#include <vector>

namespace echelon {

/// Stacks of sequences by room in [0, most_room]. A tree of 64 bits a node knows which are not empty, so that each call
/// takes log64(most_room) steps.
class RoomIndex {
 public:
  explicit RoomIndex(std::int64_t most_room);

  /// `sequence`: a small integer that is in no stack.
  void push(std::int64_t room, std::int32_t sequence);
  /// Removes and returns a sequence of the smallest room that is at least `least`, and that room; the one that was
  /// pushed last. -1 if there is none.
  [[nodiscard]] std::int32_t pop(std::int64_t least, std::int64_t& room);
  void clear();

 private:
  /// The smallest room from `least` on that has a sequence; -1 if there is none.
  [[nodiscard]] std::int64_t first_from(std::int64_t least) const;

  std::vector<std::vector<std::uint64_t>> levels_;  // bits: of rooms; of words of the level before
  std::vector<std::int32_t> tops_;                  // of each room's stack; -1: empty
  std::vector<std::int32_t> below_;                 // of each sequence: the next in its stack
};

}  // namespace echelon
