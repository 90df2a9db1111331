// What a probe reads of attention and of the loss.
#include "engine/param_pieces.h"
#include "verify/probe.h"

#include <fmt/format.h>

namespace echelon {

namespace {

constexpr std::string_view of_ranges = "range of keys of ";

}  // namespace

std::string read_of_heads(const char* what, const std::string& layer) { return fmt::format("{} of {}", what, layer); }
std::string read_of_ranges(const std::string& layer) { return std::string(of_ranges) + layer; }
bool is_of_ranges(const ReadName& name) { return name.tensor.starts_with(of_ranges); }

std::string attention_layer_of(const std::string& tensor) {
  constexpr std::string_view attention = ".self_attn";
  const std::size_t first = tensor.find("model.layers."), last = tensor.find(attention);
  if (first == std::string::npos || last == std::string::npos) return {};
  return tensor.substr(first, last + attention.size() - first);
}

namespace {

std::optional<std::int64_t> layer_of(const std::string& tensor) {
  constexpr std::string_view layers = "model.layers.";
  const std::size_t first = tensor.find(layers);
  return first == std::string::npos ? std::nullopt : std::optional(std::stoll(tensor.substr(first + layers.size())));
}

}  // namespace

std::int64_t window_of_layer(const ModelSpec& model, const std::string& tensor) {
  const std::optional<std::int64_t> layer = layer_of(tensor);
  return layer ? model.window_of(*layer) : 0;
}

bool has_rope_in_layer(const ModelSpec& model, const std::string& tensor) {
  const std::optional<std::int64_t> layer = layer_of(tensor);
  return layer && model.has_rope(*layer);
}

// Attention has no parameters. Its layer is that of the projection or norm that wrote its queries; a layer whose
// queries were saved in forward finds them again in backward.
void Probe::note_queries(const Operation& operation) {
  const auto note = [&](const Tensor& weight, const char* name, const Tensor& out) {
    const Param* param = param_at(weight);
    if (param != nullptr && param->name.ends_with(name)) layers_[out.data] = attention_layer_of(param->name);
  };
  if (const auto* product = operation.get_if<MatmulArgs>(); product != nullptr && product->transpose_b)
    note(product->b, "q_proj.weight", product->c);
  if (const auto* norm = operation.get_if<RmsNormArgs>()) note(norm->w, "q_norm.weight", norm->y);
}

// The calls with the same queries are the hops of a ring.
void Probe::start_attention(Tensor q, bool is_backward) {
  const bool is_next = attended_ == q.data && is_attention_backward_ == is_backward && hop_ + 1 < places_.cp();
  hop_ = is_next ? hop_ + 1 : 0;
  attended_ = q.data;
  is_attention_backward_ = is_backward;
  const auto found = layers_.find(q.data);
  attention_ = found == layers_.end() ? std::string() : found->second;
}

void Probe::read_attention(const AttentionArgs& args) {
  start_attention(args.q, false);
  if (hop_ == 0) read_heads("queries", "q_proj.weight", args.q, 0);
  read_heads("keys", "k_proj.weight", args.k, hop_);
  read_heads("values", "v_proj.weight", args.v, hop_);
  read_ranges(args.mask);
}

void Probe::read_attention_gradient(const AttentionBackwardArgs& args) {
  start_attention(args.q, true);
  if (hop_ == 0) {
    read_heads("queries", "q_proj.weight", args.q, 0);
    read_heads("gradient of the result", "q_proj.weight", args.dout, 0);
  }
  read_heads("keys", "k_proj.weight", args.k, hop_);
  read_heads("values", "v_proj.weight", args.v, hop_);
  read_ranges(args.mask);
}

void Probe::read_heads(const char* what, const char* projection, Tensor x, int hop) {
  const Param* weight = attention_.empty() ? nullptr : param_named(attention_ + "." + projection);
  if (weight == nullptr || x.size(0) * x.size(1) != config_.training.micro_batch_size * places_.rows_per_sequence())
    return;
  emit(read_of_heads(what, attention_),
       {.hop = hop,
        .first_column = weight->slice.entries(0).first,
        .num_columns = x.size(2) * x.size(3),
        .values = downloaded(plain_ops_, x)},
       hop);
}

// dy [N H, C], before the norm of each head.
void Probe::read_head_gradient(const Param& norm, Tensor dy) {
  const char* projection = norm.name.ends_with("q_norm.weight") ? ".q_proj.weight" : ".k_proj.weight";
  const Param* weight = param_named(attention_layer_of(norm.name) + projection);
  const std::int64_t num_rows = config_.training.micro_batch_size * places_.rows_per_sequence();
  if (weight == nullptr || dy.num_elements() % num_rows != 0) return;
  emit("gradient of the output of " + norm.name,
       {.first_column = weight->slice.entries(0).first,
        .num_columns = dy.num_elements() / num_rows,
        .values = downloaded(plain_ops_, dy)},
       0);
}

// Two columns: which rows of the block's keys a query sees. Without `end` the mask is that of one rank.
void Probe::read_ranges(const AttentionMask& mask) {
  if (mask.is_causal() || attention_.empty()) return;
  const auto bounds = [&](const Tensor& x) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(mask.end.num_elements()));
    if (x.exists()) plain_ops_.download(values.data(), x);
    return values;
  };
  const std::vector<std::int32_t> begin = bounds(mask.begin), end = bounds(mask.end);
  Values ranges;
  for (std::size_t i = 0; i < end.size(); ++i) {
    const bool is_empty = begin[i] >= end[i];
    ranges.push_back(is_empty ? 0 : begin[i]);
    ranges.push_back(is_empty ? 0 : end[i]);
  }
  emit(read_of_ranges(attention_), {.hop = hop_, .num_columns = 2, .values = std::move(ranges)}, 0);
}

// The head has chunks of the tokens.
void Probe::read_targets(Tensor targets) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(targets.num_elements()));
  plain_ops_.download(values.data(), targets);
  emit(read_of_targets,
       {.first_row = num_targets_read_, .num_columns = 1, .values = Values(values.begin(), values.end())}, 0);
  num_targets_read_ += targets.num_elements();
}

}  // namespace echelon
