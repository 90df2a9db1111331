#include "verify/context/attention_parts.h"

#include <cmath>
#include <limits>
#include <map>

namespace echelon {
namespace {

double inner_product(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

AttentionParts::AttentionParts(const Case& at, const Activations& expected, const std::string& layer)
    : places_(expected.places()),
      queries_(expected.of({false, read_of_heads("queries", layer)})),
      keys_(expected.of({false, read_of_heads("keys", layer)})),
      values_(expected.of({false, read_of_heads("values", layer)})),
      of_result_(expected.of({true, read_of_heads("gradient of the result", layer)})),
      C_(at.config().model.head_dim),
      group_(at.config().model.num_attention_heads / at.config().model.num_key_value_heads),
      T_(at.config().training.seq_len),
      scale_(at.config().model.attention_scale()),
      soft_cap_(at.config().model.attn_logit_softcapping),
      window_(window_of_layer(at.config().model, layer)) {
  const ModelSpec& model = at.config().model;
  if (!has_rope_in_layer(model, layer)) return;
  const std::vector<RopeSpec> ropes = model.ropes();
  const std::size_t i = model.rope_index(window_);
  rotation_ = rotation_of(model, ropes[i], T_);
  rotation_of_queries_ = model.has_growing_queries() ? rotation_of(model, ropes[i + ropes.size() / 2], T_) : rotation_;
}

double AttentionParts::score(std::int64_t query, std::int64_t key, std::int64_t head) const {
  const double scaled = scale_ * inner_product(row(queries_, query, head), row(keys_, key, head / group_), C_);
  return soft_cap_ > 0 ? soft_cap_ * std::tanh(scaled / soft_cap_) : scaled;
}

std::vector<std::int64_t> AttentionParts::keys_of(std::int64_t token, int cp_rank) const {
  const std::int64_t sequence = token / T_;
  const RowRange range = places_.keys_seen_by(token, cp_rank, window_);
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = range.begin; i < range.end; ++i)
    tokens.push_back(sequence * T_ + places_.positions(sequence, cp_rank)[static_cast<std::size_t>(i)]);
  return tokens;
}

bool AttentionParts::sees(std::int64_t query, std::int64_t key) const {
  const int cp_rank = places_.part_of(key);
  const RowRange range = places_.keys_seen_by(query, cp_rank, window_);
  const auto rows = places_.positions(query / T_, cp_rank);
  return range.begin < range.end && rows[static_cast<std::size_t>(range.begin)] <= key % T_ &&
         key % T_ <= rows[static_cast<std::size_t>(range.end - 1)];
}

std::vector<HeadPart> AttentionParts::forward(std::int64_t token, std::int64_t head) const {
  std::vector<HeadPart> parts;
  for (int cp_rank = 0; cp_rank < places_.cp(); ++cp_rank) {
    HeadPart part = {.lse = -std::numeric_limits<double>::infinity(), .out = Values(static_cast<std::size_t>(C_))};
    const std::vector<std::int64_t> keys = keys_of(token, cp_rank);
    double sum = 0;
    for (const std::int64_t key : keys) sum += std::exp(score(token, key, head));
    if (!keys.empty()) part.lse = std::log(sum);
    for (const std::int64_t key : keys) {
      const double weight = std::exp(score(token, key, head) - part.lse);
      const double* v = row(values_, key, head / group_);
      for (std::int64_t i = 0; i < C_; ++i) part.out[static_cast<std::size_t>(i)] += weight * v[i];
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

HeadPart united(const std::vector<HeadPart>& parts, const std::vector<int>& ranks) {
  HeadPart whole = {.lse = -std::numeric_limits<double>::infinity(), .out = Values(parts.front().out.size())};
  double sum = 0;
  for (const int rank : ranks) sum += std::exp(parts[static_cast<std::size_t>(rank)].lse);
  if (sum == 0) return whole;
  whole.lse = std::log(sum);
  for (const int rank : ranks) {
    const HeadPart& part = parts[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < whole.out.size(); ++i) whole.out[i] += std::exp(part.lse) / sum * part.out[i];
  }
  return whole;
}

// delta = dout * out (Dao et al. 2022, algorithm 4).
AttentionParts::Query AttentionParts::query_at(std::int64_t token, std::int64_t head) const {
  Query query = {.token = token, .head = head};
  double sum = 0;
  const std::vector<HeadPart> parts = forward(token, head);
  for (const HeadPart& part : parts) sum += std::exp(part.lse);
  query.lse = std::log(sum);
  for (const HeadPart& part : parts)
    query.delta += std::exp(part.lse - query.lse) * inner_product(row(of_result_, token, head), part.out.data(), C_);
  return query;
}

void AttentionParts::add(HeadGradient which, const Query& query, std::int64_t key, double* out) const {
  const double capped = score(query.token, key, query.head), p = std::exp(capped - query.lse);
  const double* dout = row(of_result_, query.token, query.head);
  if (which == HeadGradient::values) {
    for (std::int64_t i = 0; i < C_; ++i) out[i] += p * dout[i];
    return;
  }
  const double dp = inner_product(dout, row(values_, key, query.head / group_), C_);
  const double of_cap = soft_cap_ > 0 ? 1 - std::pow(capped / soft_cap_, 2) : 1.0;
  const double ds = scale_ * of_cap * p * (dp - query.delta);
  const double* other =
      which == HeadGradient::queries ? row(keys_, key, query.head / group_) : row(queries_, query.token, query.head);
  for (std::int64_t i = 0; i < C_; ++i) out[i] += ds * other[i];
}

void AttentionParts::turn_back(HeadGradient which, double* head, std::int64_t token) const {
  const Rotation& rotation = which == HeadGradient::queries ? rotation_of_queries_ : rotation_;
  const auto half = std::ssize(rotation.frequencies);
  const double factor = rotation.factor_at(places_.position_id(token));
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(places_.position_id(token)) * rotation.frequencies[static_cast<std::size_t>(i)];
    const double x = factor * head[i], y = factor * head[i + half];
    head[i] = x * std::cos(angle) + y * std::sin(angle);
    head[i + half] = y * std::cos(angle) - x * std::sin(angle);
  }
}

std::vector<Values> AttentionParts::gradient(HeadGradient which, const Read& read,
                                             std::span<const std::int64_t> turned) const {
  const bool is_of_queries = which == HeadGradient::queries;
  return addends(which, read,
                 {static_cast<std::size_t>(places_.cp()),
                  [&](std::int64_t query, std::int64_t, std::int64_t key) {
                    return places_.part_of(is_of_queries ? key : query);
                  }},
                 turned);
}

std::vector<Values> AttentionParts::gradient_by_heads(HeadGradient which, const Read& read, int num_parts) const {
  return addends(which, read,
                 {static_cast<std::size_t>(num_parts),
                  [&](std::int64_t, std::int64_t head_in_group, std::int64_t) {
                    return static_cast<int>(head_in_group * num_parts / group_);
                  }},
                 {});
}

std::vector<Values> AttentionParts::addends(HeadGradient which, const Read& read, const Addends& by,
                                            std::span<const std::int64_t> turned) const {
  std::vector<Values> parts(by.count, Values(read.values.size()));
  const std::int64_t first_head = read.first_column / C_, num_heads = read.num_columns / C_;
  // Of every token its query heads, once.
  std::map<std::pair<std::int64_t, std::int64_t>, Query> queries;
  const auto query_of = [&](std::int64_t token, std::int64_t head) -> const Query& {
    const auto [found, is_new] = queries.try_emplace({token, head});
    if (is_new) found->second = query_at(token, head);
    return found->second;
  };
  for (std::size_t i = 0; i < read.tokens.size(); ++i) {
    const std::int64_t token = read.tokens[i];
    if (token == no_token) continue;
    for (std::int64_t h = 0; h < num_heads; ++h) {
      const std::size_t at = i * static_cast<std::size_t>(read.num_columns) + static_cast<std::size_t>(h * C_);
      const auto add_pair = [&](std::int64_t query, std::int64_t head, std::int64_t key) {
        const int part = by.part_of(query, head % group_, key);
        add(which, query_of(query, head), key, &parts[static_cast<std::size_t>(part)][at]);
      };
      if (which == HeadGradient::queries) {
        for (int part = 0; part < places_.cp(); ++part)
          for (const std::int64_t key : keys_of(token, part)) add_pair(token, first_head + h, key);
      } else {
        // Queries after the key, of the heads that share it.
        for (std::int64_t query = token; query < (token / T_ + 1) * T_; ++query)
          for (std::int64_t g = 0; g < group_ && sees(query, token); ++g)
            add_pair(query, (first_head + h) * group_ + g, token);
      }
      if (which != HeadGradient::values)
        for (Values& part : parts) turn_back(which, &part[at], turned.empty() ? token : turned[i]);
    }
  }
  return parts;
}

}  // namespace echelon
