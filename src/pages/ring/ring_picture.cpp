#include "pages/ring/ring_picture.h"

#include "context/key_ranges.h"
#include "context/key_traffic.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

double largest_over_mean(const std::vector<std::int64_t>& pairs) {
  const auto sum = static_cast<double>(std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0}));
  return sum == 0 ? 1 : static_cast<double>(std::ranges::max(pairs)) * static_cast<double>(pairs.size()) / sum;
}

double contiguous_imbalance(TokenSplit split, const DocumentOffsets& documents) {
  split.balancer = LoadBalancer::none;
  TokenLists lists;
  lists.assign(split);
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(split.cp));
  count_pairs(lists, {documents, split.window}, pairs);
  return largest_over_mean(pairs);
}

}  // namespace

RingPicture ring_picture(const TokenSplit& split, const DocumentOffsets& documents) {
  const auto cp = static_cast<std::size_t>(split.cp);
  RingPicture picture;
  picture.split = split;
  picture.documents = documents;
  picture.lists.assign(split, documents);
  picture.pairs.assign(cp, std::vector<std::int64_t>(cp));
  picture.seen_rows = picture.pairs;
  picture.document_tokens.assign(cp, std::vector<std::int64_t>(documents.size() - 1));
  KeyTraffic traffic;
  traffic.count(picture.lists, {documents, split.window});
  std::vector<std::int32_t> begin(static_cast<std::size_t>(picture.lists.rows())), end(begin.size());
  std::vector<std::int64_t> of_ranks;
  for (int rank = 0; rank < split.cp; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (int hop = 0; hop < split.cp; ++hop) {
      const int source = (rank - hop + split.cp) % split.cp;
      write_key_ranges({picture.lists.positions(rank), picture.lists.positions(source)}, {documents, split.window},
                       {begin, end});
      picture.pairs[r][static_cast<std::size_t>(hop)] = num_pairs(begin, end);
      if (hop > 0) picture.seen_rows[r][static_cast<std::size_t>(hop)] = traffic.ring(source, hop);
    }
    for (const std::int32_t position : picture.lists.positions(rank))
      ++picture.document_tokens[r][picture.document_of(position)];
    of_ranks.push_back(picture.num_pairs(rank));
  }
  picture.imbalance = largest_over_mean(of_ranks);
  picture.contiguous_imbalance = contiguous_imbalance(split, documents);
  return picture;
}

std::int64_t RingPicture::num_pairs(int rank) const {
  const std::vector<std::int64_t>& of_rank = pairs[static_cast<std::size_t>(rank)];
  return std::accumulate(of_rank.begin(), of_rank.end(), std::int64_t{0});
}

std::int64_t RingPicture::longest(int hop) const {
  std::int64_t most = 0;
  for (const std::vector<std::int64_t>& of_rank : pairs) most = std::max(most, of_rank[static_cast<std::size_t>(hop)]);
  return most;
}

double RingPicture::lock_step_efficiency() const {
  double waited = 0;
  for (int rank = 0; rank < split.cp; ++rank) waited += waiting(rank);
  return 1 - waited / split.cp;
}

double RingPicture::waiting(int rank) const {
  std::int64_t time = 0;
  for (int hop = 0; hop < split.cp; ++hop) time += longest(hop);
  return time == 0 ? 0 : 1 - static_cast<double>(num_pairs(rank)) / static_cast<double>(time);
}

char RingPicture::letter_of(std::size_t document) {
  const std::size_t i = document % 52;
  return static_cast<char>(i < 26 ? 'A' + i : 'a' + (i - 26));
}

std::size_t RingPicture::document_of(std::int32_t position) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(documents, position) - documents.begin()) - 1;
}

}  // namespace echelon
