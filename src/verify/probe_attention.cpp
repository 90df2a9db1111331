// What a probe reads of attention and of the loss.
#include "engine/param_pieces.h"
#include "verify/probe.h"

#include <fmt/format.h>

namespace echelon {

namespace {

constexpr std::string_view of_ranges = "range of keys of ", of_kv_parts = "part of the gradient of the output of ";

}  // namespace

std::string read_of_heads(const char* what, const std::string& layer) { return fmt::format("{} of {}", what, layer); }
std::string read_of_ranges(const std::string& layer) { return std::string(of_ranges) + layer; }
bool is_of_ranges(const ReadName& name) { return name.tensor.starts_with(of_ranges); }
std::string read_of_kv_parts(const std::string& weight) { return std::string(of_kv_parts) + weight; }
bool is_of_kv_parts(const ReadName& name) { return name.tensor.starts_with(of_kv_parts); }

std::string attention_layer_of(const std::string& tensor) {
  constexpr std::string_view attention = ".self_attn";
  const std::size_t first = tensor.find("model.layers."), last = tensor.find(attention);
  if (first == std::string::npos || last == std::string::npos) return {};
  return tensor.substr(first, last + attention.size() - first);
}

std::optional<std::int64_t> layer_index_of(const std::string& tensor) {
  constexpr std::string_view layers = "model.layers.";
  const std::size_t first = tensor.find(layers);
  return first == std::string::npos ? std::nullopt : std::optional(std::stoll(tensor.substr(first + layers.size())));
}

std::int64_t window_of_layer(const ModelSpec& model, const std::string& tensor) {
  const std::optional<std::int64_t> layer = layer_index_of(tensor);
  return layer ? model.window_of(*layer) : 0;
}

bool has_rope_in_layer(const ModelSpec& model, const std::string& tensor) {
  const std::optional<std::int64_t> layer = layer_index_of(tensor);
  return layer && model.has_rope(*layer);
}

// Attention has no parameters; a layer says that it is in it. Its calls are the hops of a ring, or the kv heads of
// gathered keys.
void Probe::start_attention(bool is_backward) {
  const std::string_view layer = mesh().layer();
  const bool is_same = attention_ == layer && is_attention_backward_ == is_backward;
  call_ = is_same ? call_ + 1 : 0;
  if (places_.num_blocks() > 1) call_ %= places_.num_blocks();
  attention_ = layer;
  is_attention_backward_ = is_backward;
}

void Probe::read_attention(const AttentionArgs& args) {
  start_attention(false);
  read_queries("queries", args.q);
  read_keys("keys", "k_proj.weight", args.k);
  read_keys("values", "v_proj.weight", args.v);
  read_ranges(args.mask, args.k.size(1));
}

void Probe::read_attention_gradient(const AttentionBackwardArgs& args) {
  start_attention(true);
  read_queries("queries", args.q);
  read_queries("gradient of the result", args.dout);
  read_keys("keys", "k_proj.weight", args.k);
  read_keys("values", "v_proj.weight", args.v);
  read_ranges(args.mask, args.k.size(1));
}

// Those of a ring are the same at every hop.
void Probe::read_queries(const char* what, Tensor x) {
  if (places_.num_blocks() == 1 || call_ == 0) read_heads(what, "q_proj.weight", x, places_.queries_of(place()));
}

void Probe::read_keys(const char* what, const char* projection, Tensor x) {
  const int block = places_.block_at(place().cp_rank, places_.num_blocks() > 1 ? call_ : 0);
  std::vector<std::int64_t> tokens = places_.keys_of(place(), block);
  leave_out_unseen(block, tokens);
  read_heads(what, projection, x, std::move(tokens));
}

void Probe::leave_out_unseen(int block, std::vector<std::int64_t>& tokens) const {
  const std::int64_t window = window_of_layer(config_.model, attention_),
                     rows_per_sequence = std::ssize(tokens) / config_.training.micro_batch_size;
  const std::vector<std::int64_t> queries = places_.queries_of(place());
  const std::int64_t queries_per_sequence = std::ssize(queries) / config_.training.micro_batch_size;
  std::vector<bool> is_seen(tokens.size());
  for (std::int64_t i = 0; i < std::ssize(queries); ++i) {
    const std::int64_t query = queries[static_cast<std::size_t>(i)];
    if (query == no_token) continue;
    const RowRange range = places_.rows_seen_by(query, block, window);
    const std::int64_t first = i / queries_per_sequence * rows_per_sequence;
    for (std::int64_t row = range.begin; row < range.end; ++row) is_seen[static_cast<std::size_t>(first + row)] = true;
  }
  for (std::size_t row = 0; row < tokens.size(); ++row)
    if (!is_seen[row] && tokens[row] != no_token && places_.part_of(tokens[row]) != place().cp_rank)
      tokens[row] = no_token;
}

// Ranks that exchange heads have a part of them each; fewer kv heads than ranks are shared by neighbours.
std::int64_t Probe::first_column_of(const Param& projection, std::int64_t num_columns) const {
  const std::int64_t u = places_.head_ranks(), num_parts = projection.value.size(0) / num_columns;
  const std::int64_t part = u > 1 ? place().cp_rank % u * num_parts / u : places_.num_blocks() > 1 ? 0 : call_;
  return projection.slice.entries(0).first + part % num_parts * num_columns;
}

void Probe::read_heads(const char* what, const char* projection, Tensor x, std::vector<std::int64_t> tokens) {
  const Param* weight = attention_.empty() ? nullptr : param_named(attention_ + "." + projection);
  if (weight == nullptr || x.size(0) * x.size(1) != std::ssize(tokens)) return;
  const std::int64_t num_columns = x.size(2) * x.size(3);
  emit(read_of_heads(what, attention_),
       {.hop = places_.num_blocks() > 1 ? call_ : 0,
        .first_column = first_column_of(*weight, num_columns),
        .num_columns = num_columns,
        .values = downloaded(plain_ops_, x)},
       std::move(tokens));
}

// dy [N H, C], before the norm of each head.
void Probe::read_head_gradient(const Param& norm, Tensor dy) {
  const char* projection = norm.name.ends_with("q_norm.weight") ? ".q_proj.weight" : ".k_proj.weight";
  const Param* weight = param_named(attention_layer_of(norm.name) + projection);
  const std::int64_t num_rows = config_.training.micro_batch_size * places_.rows_per_sequence();
  if (weight == nullptr || dy.num_elements() % num_rows != 0) return;
  emit("gradient of the output of " + norm.name, {.first_column = weight->slice.entries(0).first,
                                                  .num_columns = dy.num_elements() / num_rows,
                                                  .values = downloaded(plain_ops_, dy)});
}

// After a norm the projection's own gradient depends on no part alone.
bool Probe::read_kv_part(const Param& weight, const Tensor& dy) {
  const std::string layer = attention_layer_of(weight.name);
  const bool is_of_norm = weight.name == layer + ".k_norm.weight",
             is_of_keys = weight.name == layer + ".k_proj.weight" && param_named(layer + ".k_norm.weight") == nullptr,
             is_of_values = weight.name == layer + ".v_proj.weight";
  if (kv_replicas_ == 1 || layer.empty() || !(is_of_norm || is_of_keys || is_of_values)) return false;
  const Param& projection = *param_named(layer + (is_of_values ? ".v_proj.weight" : ".k_proj.weight"));
  const std::int64_t all_columns = config_.model.num_key_value_heads * config_.model.head_dim;
  Read read = {.num_columns = kv_replicas_ * all_columns};
  if (plain_mesh_.shape().degree(Axis::tp) == 1) {
    auto parts = kv_parts_.of(dy);
    if (!parts) return false;
    read.values = std::move(*parts);
    emit(read_of_kv_parts(weight.name), std::move(read));
    return false;  // the whole gradient is read too
  }
  const int replica = plain_mesh_.coordinate(Axis::tp) % kv_replicas_;
  read.num_columns = projection.value.size(0);
  read.first_column = replica * all_columns + projection.slice.entries(0).first;
  read.values = downloaded(plain_ops_, dy);
  emit(read_of_kv_parts(weight.name), std::move(read));
  return true;
}

// Two columns: which rows of the block's keys a query sees. Without `end` the last query sees the last key.
void Probe::read_ranges(const AttentionMask& mask, std::int64_t num_keys) {
  if (!mask.begin.exists() || attention_.empty()) return;
  const auto bounds = [&](const Tensor& x) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(x.exists() ? x.num_elements() : 0));
    if (x.exists()) plain_ops_.download(values.data(), x);
    return values;
  };
  const std::vector<std::int32_t> begin = bounds(mask.begin), end = bounds(mask.end);
  const std::int64_t num_queries = mask.begin.size(1);
  Values ranges;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) % num_queries;
    const std::int64_t last = end.empty() ? row + 1 + num_keys - num_queries : end[i];
    const bool is_empty = begin[i] >= last;
    ranges.push_back(is_empty ? 0 : static_cast<double>(begin[i]));
    ranges.push_back(is_empty ? 0 : static_cast<double>(last));
  }
  emit(read_of_ranges(attention_),
       {.hop = places_.num_blocks() > 1 ? call_ : 0, .num_columns = 2, .values = std::move(ranges)},
       places_.queries_of(place()));
}

// The head has chunks of the tokens.
void Probe::read_targets(Tensor targets) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(targets.num_elements()));
  plain_ops_.download(values.data(), targets);
  emit(read_of_targets,
       {.first_row = num_targets_read_, .num_columns = 1, .values = Values(values.begin(), values.end())});
  num_targets_read_ += targets.num_elements();
}

}  // namespace echelon
