#include "nn/mixture/exchange_bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace echelon {
namespace {

/// That experts of one rank take of all sequences of their group. With features over ranks, rows come from one rank for
/// each part of the experts.
std::int64_t rows_within_capacity(const LayerOptions& options) {
  const std::int64_t ranks = options.num_expert_ranks(),
                     ranks_of_sequence = (options.tokens ? options.tokens->cp : 1) * options.tp;
  // A group may start within the ranks of a sequence, at most this many after the first of them.
  const std::int64_t latest = ranks_of_sequence - std::gcd(ranks, ranks_of_sequence);
  const std::int64_t sequences = (latest + ranks + ranks_of_sequence - 1) / ranks_of_sequence;
  return options.num_sequences * std::min<std::int64_t>(options.ep, sequences) *
         (options.model.mixture.num_experts / options.ep) * options.expert_capacity;
}

std::int64_t bounded(double bound, double rows) { return static_cast<std::int64_t>(std::ceil(bound * rows)); }

/// Of tokens those for a node, with even loads.
double even_share_of_tokens(const LayerOptions& options) {
  const MixtureSpec& spec = options.model.mixture;
  if (options.ep_on_node == 1) return 1;
  return share_of_tokens(spec.num_experts, options.ep / options.ep_on_node, spec.num_experts_per_tok, spec.n_group,
                         spec.topk_group);
}

}  // namespace

std::int64_t most_rows_of(const LayerOptions& options) {
  const MixtureSpec& spec = options.model.mixture;
  const std::int64_t tokens = options.num_local_tokens(), rows = tokens * spec.num_experts_per_tok,
                     ever = options.ep * tokens * std::min(spec.num_experts_per_tok, spec.num_experts / options.ep);
  // Evaluations drop nothing: R rows take one round if loads are even.
  if (options.expert_capacity > 0) return std::min(ever, std::max(rows, rows_within_capacity(options)));
  return std::max<std::int64_t>(1, std::min(bounded(options.dispatch_bound, static_cast<double>(rows)), ever));
}

NodeShares node_shares_of(const LayerOptions& options, const std::vector<double>& loads) {
  const MixtureSpec& spec = options.model.mixture;
  const int P = options.ep, F = options.etp, L = options.ep_on_node, num_ranks = P * F, M = num_ranks / L;
  NodeShares shares;
  shares.rows.assign(static_cast<std::size_t>(num_ranks), 1.0 / P);
  if (loads.empty()) {
    shares.tokens.assign(static_cast<std::size_t>(M), even_share_of_tokens(options));
    return shares;
  }
  // Every rank sees itself as the most loaded one, as in a direct exchange.
  for (int i = 0; i < num_ranks; ++i)
    shares.rows[static_cast<std::size_t>((options.ep_rank * F + i) % num_ranks)] =
        loads[static_cast<std::size_t>(i / F)];
  for (int node = 0; node < M; ++node) {
    double rows = 0;
    for (int place = 0; place < L; ++place) {
      const int rank = node * L + place;
      rows += shares.rows[static_cast<std::size_t>(rank)];
    }
    const double missed = std::pow(1 - std::min(rows, 1.0), static_cast<double>(spec.num_experts_per_tok));
    shares.tokens.push_back(L == 1 ? 1 : 1 - missed);
  }
  return shares;
}

// G and X are bounded as Q is, by what comes with even loads. Rows within the capacity of experts take one round.
NodeSizes node_sizes_of(const LayerOptions& options) {
  const MixtureSpec& spec = options.model.mixture;
  const std::int64_t N = options.num_local_tokens(), k = spec.num_experts_per_tok, E = spec.num_experts,
                     P = options.num_expert_ranks(), M = P / options.ep_on_node,
                     on_node = std::min(k, E * options.etp / M), on_rank = std::min(k, E / options.ep);
  NodeSizes sizes = {.num_nodes = static_cast<int>(M),
                     .ranks_per_node = options.ep_on_node,
                     .rank = options.ep_rank * options.etp + options.etp_rank,
                     .ranks_of_features = options.etp,
                     .num_tokens = N,
                     .experts_per_token = k,
                     .num_experts = E};
  const auto rows = static_cast<double>(N * k);
  const double tokens = even_share_of_tokens(options) * static_cast<double>(M * N);
  const bool has_capacity = options.expert_capacity > 0;
  const std::int64_t taken = std::max(N * k, options.num_sequences * E * options.expert_capacity);
  const double bound = options.dispatch_bound;
  sizes.most_rows = std::max(options.etp * most_rows_of(options), P * on_rank);  // a token of each rank fits
  sizes.most_copies = std::min(M * N * on_node, std::max(M * on_node, has_capacity ? taken : bounded(bound, rows)));
  sizes.most_tokens = std::min(M * N, std::max(M, has_capacity ? M * N : bounded(bound, tokens)));
  if (sizes.gives_all()) {  // equally many of each rank, and its copies are its rows
    sizes.most_tokens = (sizes.most_tokens + M - 1) / M * M;
    sizes.most_copies = sizes.most_rows;
  }
  return sizes;
}

}  // namespace echelon
