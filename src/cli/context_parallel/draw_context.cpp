#include "cli/context_parallel/draw_context.h"

#include "base/divisors.h"
#include "base/error.h"
#include "cli/arguments.h"
#include "spec/config/run_config.h"

#include <CLI/CLI.hpp>

#include <fmt/ranges.h>
#include <charconv>

namespace echelon {
namespace {

constexpr std::int64_t most_tokens = 1 << 24;  // of a sequence: a rank's lists and ranges are computed for each hop
constexpr int most_ranks = 256, most_heads = 256;

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

KeyExchange exchange_of(const DrawContextArguments& arguments) {
  ParallelConfig parallelism;
  parallelism.context_parallel_degree = arguments.cp;
  parallelism.context_parallel_method = parse_exactly<ContextMethod>("--method", arguments.method);
  parallelism.context_parallel_ulysses_degree = arguments.ulysses_degree;
  check_key_exchange(
      parallelism,
      {.prefix = "", .method = "--method", .cp = "--context-parallel", .ulysses_degree = "--ulysses-degree"});
  return key_exchange(parallelism);
}

HeadSplit heads_of(const DrawContextArguments& arguments, const KeyExchange& exchange) {
  const std::int64_t H = arguments.num_heads, K = arguments.num_kv_heads == 0 ? H : arguments.num_kv_heads;
  require(H % K == 0, "--kv-heads={} does not divide --heads={} (use {})", K, H, closest_divisor(H, K));
  return drawn_heads(H, K, arguments.cp, exchange);
}

}  // namespace

void add_context_options(CLI::App& app, DrawContextArguments& arguments) {
  auto* const ranks =
      app.add_option("--context-parallel", arguments.cp, "ranks of a sequence: their tokens, and what is sent")
          ->check(in_range(1, most_ranks));
  auto* const tokens = app.add_option("--seq-len", arguments.seq_len, "tokens of the sequence")
                           ->check(in_range(1, static_cast<double>(most_tokens)))
                           ->capture_default_str()
                           ->needs(ranks);
  app.add_option("--balancer", arguments.balancer, "headtail, none, striped, per_document or packed")
      ->capture_default_str()
      ->needs(ranks);
  app.add_option("--documents", arguments.documents, "tokens of each document of the sequence: 9,7")
      ->needs(ranks)
      ->excludes(tokens);
  app.add_option("--method", arguments.method, "ring, all_gather, ulysses or ulysses_ring")
      ->capture_default_str()
      ->needs(ranks);
  app.add_option("--heads", arguments.num_heads, "query heads")
      ->check(in_range(1, most_heads))
      ->capture_default_str()
      ->needs(ranks);
  app.add_option("--kv-heads", arguments.num_kv_heads, "0: as many")
      ->check(in_range(0, most_heads))
      ->capture_default_str()
      ->needs(ranks);
  app.add_option("--ulysses-degree", arguments.ulysses_degree, "of ulysses_ring")
      ->check(in_range(0, most_ranks))
      ->capture_default_str()
      ->needs(ranks);
  for (const char* const name : schedule_options) ranks->excludes(app.get_option(name));
}

ContextPicture drawn_context(const DrawContextArguments& arguments) {
  const DocumentOffsets documents = arguments.documents.empty()
                                        ? DocumentOffsets{0, static_cast<std::int32_t>(arguments.seq_len)}
                                        : offsets_of(arguments.documents);
  const std::int64_t seq_len = documents.back();
  require(arguments.cp <= seq_len, "--context-parallel={} is more than the {} tokens: every rank holds one (use {})",
          arguments.cp, seq_len, seq_len);
  require(arguments.cp * seq_len <= ContextPicture::most_hop_tokens,
          "--context-parallel={} x {} tokens are more than {} (use --seq-len={})", arguments.cp, seq_len,
          ContextPicture::most_hop_tokens, ContextPicture::most_hop_tokens / arguments.cp);
  const KeyExchange exchange = exchange_of(arguments);
  return context_picture({.seq_len = seq_len, .cp = arguments.cp, .balancer = balancer_of(arguments.balancer)},
                         documents, exchange, heads_of(arguments, exchange));
}

}  // namespace echelon
