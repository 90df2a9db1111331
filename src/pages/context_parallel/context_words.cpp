#include "pages/context_parallel/context_words.h"

#include "base/text/counted.h"

namespace echelon {

std::string ranks_text(const ContextPicture& picture) {
  const std::string ranks = counted(picture.split.cp, "rank"),
                    heads =
                        fmt::format(", {} query and {} kv heads", picture.heads.num_heads, picture.heads.num_kv_heads);
  switch (picture.exchange.method) {
    case ContextMethod::ring: return ranks + " of a ring";
    case ContextMethod::all_gather: return ranks + " that gather keys" + heads;
    case ContextMethod::ulysses: return ranks + " that exchange heads" + heads;
    case ContextMethod::ulysses_ring:
      return fmt::format("{} of a ring of groups of {} that exchange heads{}", ranks, picture.exchange.head_ranks,
                         heads);
  }
  return ranks;
}

std::string sent_text(const ContextPicture& picture) {
  const std::int64_t rows = picture.block_rows;
  if (picture.is_gathered())
    return fmt::format("what is gathered for each of {}: {} of each rank's keys and values, of which so many are seen",
                       counted(picture.heads.num_kv_heads, "kv head"), counted(rows, "row"));
  if (picture.exchanges_heads())
    return fmt::format(
        "what is sent for each hop: {} of a group's keys and values (a rank's heads), of which so many are seen "
        "there or later",
        counted(rows, "row"));
  return fmt::format(
      "what is sent for each hop: {} of a rank's keys and values, of which so many are seen there or later",
      counted(rows, "row"));
}

std::string pairs_text(const ContextPicture& picture) {
  if (picture.is_gathered())
    return "pairs (query, key) of a head with the keys of each rank; a kv head ends with its slowest rank";
  if (picture.num_places() == 1 && picture.exchanges_heads())
    return "pairs (query, key) of a head; every rank has all tokens of its heads, and waits for none";
  return "pairs (query, key) of a head at each hop; a hop ends with its slowest rank";
}

std::string range_text(std::int64_t first, std::int64_t count) {
  return count == 1 ? std::to_string(first) : fmt::format("{}-{}", first, first + count - 1);
}

}  // namespace echelon
