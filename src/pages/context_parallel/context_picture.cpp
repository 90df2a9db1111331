#include "pages/context_parallel/context_picture.h"

#include "blueprint/balanced_batch.h"
#include "blueprint/blueprint.h"
#include "context/key_ranges.h"
#include "context/key_traffic.h"
#include "nn/context_parallel/head_exchange.h"

#include <algorithm>
#include <memory>
#include <numeric>

namespace echelon {
namespace {

double imbalance_of(const TokenLists& lists, const ContextPicture& picture) {
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(picture.split.cp));
  count_pairs(lists, {picture.documents, picture.split.window}, pairs);
  share_pairs(pairs, picture.exchange.head_ranks);
  return largest_over_mean(pairs);
}

double contiguous_imbalance(const ContextPicture& picture) {
  TokenSplit split = picture.split;
  split.balancer = LoadBalancer::none;
  TokenLists lists;
  lists.assign(split);
  return imbalance_of(lists, picture);
}

void fill_pairs(ContextPicture& picture) {
  const int n = picture.num_places(), u = picture.exchange.head_ranks;
  std::vector<std::vector<std::int32_t>> positions(static_cast<std::size_t>(n));
  for (int place = 0; place < n; ++place)
    unite_positions(picture.lists, place * u, u, positions[static_cast<std::size_t>(place)]);
  const Visibility visibility = {picture.documents, picture.split.window};
  KeyTraffic traffic;
  traffic.count(picture.lists, visibility, u);
  std::vector<std::int32_t> begin, end;
  for (int place = 0; place < n; ++place) {
    const std::vector<std::int32_t>& queries = positions[static_cast<std::size_t>(place)];
    std::vector<std::int64_t>&pairs = picture.pairs.emplace_back(), &seen = picture.seen_rows.emplace_back();
    begin.resize(queries.size());
    end.resize(queries.size());
    for (int distance = 0; distance < n; ++distance) {
      const int source = picture.source_of(place, distance);
      write_key_ranges({queries, positions[static_cast<std::size_t>(source)]}, visibility, {begin, end});
      pairs.push_back(num_pairs(begin, end));
      seen.push_back(distance == 0           ? 0
                     : picture.is_gathered() ? traffic.seen(source, place)
                                             : traffic.ring(source, distance));
    }
  }
}

void fill_longest(ContextPicture& picture) {
  picture.longest.resize(picture.is_gathered() ? 1 : static_cast<std::size_t>(picture.num_places()));
  for (int step = 0; step < picture.num_steps(); ++step)
    for (int place = 0; place < picture.num_places(); ++place) {
      std::int64_t& longest = picture.longest[static_cast<std::size_t>(step)];
      longest = std::max(longest, picture.pairs_of_step(place, step));
    }
}

}  // namespace

ContextPicture context_picture(const TokenSplit& split, const DocumentOffsets& documents, const KeyExchange& exchange,
                               const HeadSplit& heads) {
  ContextPicture picture;
  picture.split = split;
  picture.exchange = exchange;
  picture.heads = heads;
  picture.documents = documents;
  picture.lists.assign(split, documents);
  picture.block_rows = KeyBlockSizes(split, exchange, 0).num_query_rows();
  picture.document_tokens.assign(static_cast<std::size_t>(split.cp), std::vector<std::int64_t>(documents.size() - 1));
  for (int rank = 0; rank < split.cp; ++rank)
    for (const std::int32_t position : picture.lists.positions(rank))
      ++picture.document_tokens[static_cast<std::size_t>(rank)][picture.document_of(position)];
  fill_pairs(picture);
  fill_longest(picture);
  picture.imbalance = imbalance_of(picture.lists, picture);
  picture.contiguous_imbalance = contiguous_imbalance(picture);
  return picture;
}

ContextPicture context_picture(const Blueprint& blueprint, const DocumentOffsets& documents) {
  const RunConfig& config = blueprint.config();
  const std::shared_ptr<const RankTokens> tokens = blueprint.rank(0).part().options.tokens;
  return context_picture(tokens->split, documents, tokens->exchange,
                         head_split(config.model, static_cast<int>(config.parallelism.tensor_parallel_degree), 0));
}

HeadSplit drawn_heads(std::int64_t num_heads, std::int64_t num_kv_heads, int cp, const KeyExchange& exchange) {
  ModelSpec model;
  model.num_attention_heads = num_heads;
  model.num_key_value_heads = num_kv_heads;
  const bool is_whole = exchange.method == ContextMethod::ulysses;
  if (exchange.head_ranks > 1)
    validate_head_exchange(model, 1,
                           {.key = is_whole ? "--context-parallel" : "--ulysses-degree",
                            .num_ranks = exchange.head_ranks,
                            .divides = is_whole ? 0 : cp});
  return head_split(model, 1, 0);
}

ExchangedRows exchanged_rows(const ContextPicture& picture) {
  const HeadSplit received = picture.heads_of(0);  // by every rank as many
  const std::int64_t rows = picture.lists.rows(), of_keys = rows * received.num_kv_heads,
                     of_queries = rows * received.num_heads;
  return {.queries = of_queries, .keys = of_keys, .values = of_keys, .results = of_queries};
}

std::string ContextPicture::name_of_place(int place) const {
  const int u = exchange.head_ranks;
  return u == 1 ? fmt::format("rank {}", place) : fmt::format("ranks {}-{}", place * u, place * u + u - 1);
}

HeadSplit ContextPicture::heads_of(int rank) const {
  return exchanged_heads(heads, exchange.head_ranks, rank % exchange.head_ranks);
}

std::int64_t ContextPicture::pairs_of_step(int place, int step) const {
  const std::vector<std::int64_t>& of_place = pairs[static_cast<std::size_t>(place)];
  return num_steps() > 1 ? of_place[static_cast<std::size_t>(step)]
                         : std::accumulate(of_place.begin(), of_place.end(), std::int64_t{0});
}

std::int64_t ContextPicture::num_pairs(int rank) const {
  const std::vector<std::int64_t>& of_place = pairs[static_cast<std::size_t>(place_of(rank))];
  return std::accumulate(of_place.begin(), of_place.end(), std::int64_t{0});
}

double ContextPicture::lock_step_efficiency() const {
  double waited = 0;
  for (int rank = 0; rank < split.cp; ++rank) waited += waiting(rank);
  return 1 - waited / split.cp;
}

double ContextPicture::waiting(int rank) const {
  const std::int64_t time = std::accumulate(longest.begin(), longest.end(), std::int64_t{0});
  return time == 0 ? 0 : 1 - static_cast<double>(num_pairs(rank)) / static_cast<double>(time);
}

char ContextPicture::letter_of(std::size_t document) {
  const std::size_t i = document % 52;
  return static_cast<char>(i < 26 ? 'A' + i : 'a' + (i - 26));
}

std::size_t ContextPicture::document_of(std::int32_t position) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(documents, position) - documents.begin()) - 1;
}

}  // namespace echelon
