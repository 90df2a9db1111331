#include "data/packing/best_fit.h"

#include "data/packing/room_index.h"
#include "scratch.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace echelon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> starts(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), starts.begin() + 1);
  return starts;
}

std::vector<std::int64_t> drawn_lengths(std::size_t num_documents, std::uint64_t most, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> lengths(num_documents);
  for (auto& length : lengths) length = static_cast<std::int64_t>(random() % (most + 1));
  return lengths;
}

// Of rooms, by a multimap.
TEST(BestFit, RoomsAreFoundLikeInASortedMap) {
  for (const std::int64_t most_room : {1, 63, 64, 65, 5000, 300000}) {
    RoomIndex rooms(most_room);
    std::multimap<std::int64_t, std::int32_t> expected;
    std::mt19937_64 random(static_cast<std::uint64_t>(most_room));
    std::int32_t num_sequences = 0;
    for (int i = 0; i < 2000; ++i) {
      const auto drawn = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most_room + 1));
      if (i % 3 > 0) {
        rooms.push(drawn, num_sequences);
        expected.emplace(drawn, num_sequences++);
        continue;
      }
      std::int64_t room = 0;
      const std::int32_t sequence = rooms.pop(drawn, room);
      const auto found = expected.lower_bound(drawn);
      ASSERT_EQ(sequence < 0, found == expected.end());
      if (sequence < 0) continue;
      ASSERT_EQ(room, found->first);
      const auto last = std::prev(expected.upper_bound(room));  // the last of those pushed with this room
      ASSERT_EQ(sequence, last->second);
      expected.erase(last);
    }
  }
}

// Sorted: 9 8 5 4 3 1, with room for 10. 4 joins 5, 3 finds no room, and 1 goes to the last of the two that have room
// for exactly it.
TEST(BestFit, OfAHandmadeCase) {
  const std::vector<std::int64_t> starts = starts_of({3, 9, 1, 5, 8, 0, 4});
  const PackedSequences packed = pack_best_fit({.document_starts = starts, .seq_len = 10, .seed = 1});
  std::vector<std::vector<std::int32_t>> lengths;
  for (std::int64_t s = 0; s < packed.num_sequences(); ++s) {
    lengths.emplace_back();
    for (std::int64_t i = 0; i < packed.num_pieces(s); ++i) lengths.back().push_back(packed.piece(s, i).length);
  }
  EXPECT_THAT(lengths, ElementsAre(ElementsAre(9), ElementsAre(8), ElementsAre(5, 4, 1), ElementsAre(3)));
  EXPECT_EQ(packed.num_padding(), 10);
  EXPECT_EQ(packed.num_split, 0);
}

TEST(BestFit, HoldsEveryTokenOnceAndSplitsOnlyLongDocuments) {
  for (const std::int64_t seq_len : {1, 7, 64, 1000})
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
      const std::vector<std::int64_t> lengths = drawn_lengths(500, 150, seed), starts = starts_of(lengths);
      const PackedSequences packed = pack_best_fit({.document_starts = starts, .seq_len = seq_len, .seed = seed});
      std::map<std::int64_t, std::int64_t> pieces;  // start -> length
      std::int64_t padding = 0;
      for (std::int64_t s = 0; s < packed.num_sequences(); ++s) {
        std::int64_t num_tokens = 0;
        for (std::int64_t i = 0; i < packed.num_pieces(s); ++i) {
          const DocumentPiece piece = packed.piece(s, i);
          EXPECT_TRUE(pieces.emplace(piece.start, piece.length).second) << "twice";
          num_tokens += piece.length;
        }
        EXPECT_LE(num_tokens, seq_len);
        padding += seq_len - num_tokens;
      }
      std::map<std::int64_t, std::int64_t> expected;
      for (std::size_t d = 0; d < lengths.size(); ++d)
        for (std::int64_t at = 0; at < lengths[d]; at += seq_len)
          expected.emplace(starts[d] + at, std::min(seq_len, lengths[d] - at));
      EXPECT_EQ(pieces, expected);
      EXPECT_EQ(packed.num_padding(), padding);
      EXPECT_EQ(packed.num_split, std::ranges::count_if(lengths, [&](auto length) { return length > seq_len; }));
    }
}

// Several windows; documents of up to a sequence, of which many are short.
TEST(BestFit, PadsLittleAndDependsOnTheSeed) {
  std::vector<std::int64_t> lengths = drawn_lengths(150000, 4096, 7);
  for (auto& length : lengths) length = length * length / 4096;
  const std::vector<std::int64_t> starts = starts_of(lengths);
  const PackedSequences packed = pack_best_fit({.document_starts = starts, .seq_len = 4096, .seed = 1});
  EXPECT_LE(packed.num_padding(), packed.num_tokens / 1000);
  EXPECT_EQ(packed, pack_best_fit({.document_starts = starts, .seq_len = 4096, .seed = 1}));
  EXPECT_FALSE(packed == pack_best_fit({.document_starts = starts, .seq_len = 4096, .seed = 2}));
}

TEST(BestFit, RefusesSequencesOfNoTokens) {
  const std::vector<std::int64_t> starts = {0, 3};
  EXPECT_THAT(sentence_of([&] { (void)pack_best_fit({.document_starts = starts, .seq_len = 0}); }),
              HasSubstr("training.seq_len = 0"));
}

}  // namespace
}  // namespace echelon
