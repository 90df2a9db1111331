#include "cli/ring/draw_ring.h"

#include "base/error.h"
#include "cli/arguments.h"

#include <CLI/CLI.hpp>

#include <fmt/ranges.h>
#include <charconv>

namespace echelon {
namespace {

constexpr std::int64_t most_tokens = 1 << 24;  // of a ring: a rank's lists and ranges are computed for each hop
constexpr int most_ranks = 256;

LoadBalancer balancer_of(const std::string& name) {
  std::vector<std::string_view> names;
  for (const LoadBalancer balancer : load_balancers) {
    if (name == name_of(balancer)) return balancer;
    names.push_back(name_of(balancer));
  }
  throw Error(fmt::format("--balancer={} is not one of {}; did you mean {}?", name, fmt::join(names, ", "),
                          closest_name(name, names)));
}

/// Of "9,7": 0, 9, 16.
DocumentOffsets offsets_of(const std::string& lengths) {
  DocumentOffsets offsets = {0};
  for (const char *at = lengths.data(), *end = at + lengths.size(); at <= end; ++at) {
    std::int64_t length = -1;
    const auto [after, failure] = std::from_chars(at, end, length);
    const bool is_length = failure == std::errc() && (after == end || *after == ',') && length >= 0 &&
                           offsets.back() + length <= most_tokens;
    require(is_length, "--documents={} is not a list of lengths of at most {} tokens together (use 9,7)", lengths,
            most_tokens);
    offsets.push_back(static_cast<std::int32_t>(offsets.back() + length));
    at = after;
  }
  require(offsets.back() > 0, "--documents={} has no tokens (use 9,7)", lengths);
  return offsets;
}

}  // namespace

void add_ring_options(CLI::App& app, DrawRingArguments& arguments) {
  auto* const ranks = app.add_option("--context-parallel", arguments.cp,
                                     "ranks of a ring, instead of a schedule: their tokens, and each hop")
                          ->check(in_range(1, most_ranks));
  auto* const tokens = app.add_option("--seq-len", arguments.seq_len, "tokens of the ring's sequence")
                           ->check(in_range(1, static_cast<double>(most_tokens)))
                           ->capture_default_str()
                           ->needs(ranks);
  app.add_option("--balancer", arguments.balancer, "headtail, none, striped, per_document or packed")
      ->capture_default_str()
      ->needs(ranks);
  app.add_option("--documents", arguments.documents, "tokens of each document of the sequence: 9,7")
      ->needs(ranks)
      ->excludes(tokens);
  for (const char* const name : {"--schedule", "--schedule-csv", "--stages", "--microbatches", "--virtual"})
    ranks->excludes(app.get_option(name));
}

RingPicture drawn_ring(const DrawRingArguments& arguments) {
  const DocumentOffsets documents = arguments.documents.empty()
                                        ? DocumentOffsets{0, static_cast<std::int32_t>(arguments.seq_len)}
                                        : offsets_of(arguments.documents);
  const std::int64_t seq_len = documents.back();
  require(arguments.cp <= seq_len, "--context-parallel={} is more than the {} tokens: every rank holds one (use {})",
          arguments.cp, seq_len, seq_len);
  return ring_picture({.seq_len = seq_len, .cp = arguments.cp, .balancer = balancer_of(arguments.balancer)}, documents);
}

}  // namespace echelon
