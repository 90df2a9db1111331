#include "nn/decoder/stage.h"

#include "base/error.h"
#include "nn/decoder/decoder_block.h"
#include "nn/decoder/embedding.h"
#include "nn/decoder/head.h"
#include "nn/sharding.h"

namespace echelon {
namespace {

constexpr int whole_stage = -1;

struct Flow {
  Tensor dy, dx;
};

// The gradient of unit i's output is in flow[i % 2], so that a unit never reads and writes the same tensor.
Flow flow_of(const Stage::Gradients& gradients, int unit, int num_units) {
  const auto between = [&](int index) { return gradients.flow[static_cast<std::size_t>(index % 2)]; };
  return {unit == num_units - 1 ? gradients.dy : between(unit), unit == 0 ? gradients.dx : between(unit - 1)};
}

// `visit(index)` of one unit, or of all from the last to the first.
template <class Visit>
void for_units_in_reverse(int unit, int num_units, Visit visit) {
  if (unit != whole_stage) return visit(unit);
  for (int index = num_units - 1; index >= 0; --index) visit(index);
}

}  // namespace

Stage::Stage(const LayerOptions& options, const StageLayers& layers, Param* tied_weight)
    : options_(options),
      layers_(layers),
      ropes_(std::make_unique<std::array<RopeTables, 4>>()),
      tied_weight_(tied_weight) {
  const DType table_dtype = accumulate_dtype(options.dtype);
  ropes_->fill({.cos = {nullptr, table_dtype, rope_table_sizes()},
                .sin = {nullptr, table_dtype, rope_table_sizes()},
                .frequencies = {nullptr, DType::float64, rope_frequency_sizes()}});
  if (options.model.tie_word_embeddings && (layers.has_embedding || layers.has_head) && tied_weight_ == nullptr) {
    own_tied_weight_ = std::make_unique<Param>(vocabulary_matrix(options, "model.embed_tokens.weight"));
    tied_weight_ = own_tied_weight_.get();
  }
  const auto add = [&]<class Unit>(std::unique_ptr<Unit> unit) {
    Unit* const added = unit.get();
    units_.push_back(std::move(unit));
    return added;
  };
  if (layers.has_embedding) embedding_ = add(std::make_unique<Embedding>(options, tied_weight_));
  for (std::int64_t i = 0; i < layers.num_layers; ++i) {
    LayerOptions of_block = options;
    of_block.recompute.operations = options.recompute.of_block(i);
    of_block.window = options.model.window_of(layers.first_layer + i);
    of_block.has_rope = options.model.has_rope(layers.first_layer + i);
    of_block.has_experts = options.model.mixture.is_in(layers.first_layer + i);
    of_block.mixture_row = options.model.mixture.num_layers_of(layers.first_layer + i);
    blocks_.push_back(add(std::make_unique<DecoderBlock>(of_block, layers.first_layer + i,
                                                         (*ropes_)[options.model.rope_index(of_block.window)])));
  }
  if (layers.has_head) head_ = add(make_head(options, tied_weight_));
  for (int i = 0; i <= num_units(); ++i)
    for (Param* param : unit_params(i)) {
      param->is_saved = is_trained(options.lora, options.model, param->name);
      param->trains = param->trains && param->is_saved;
    }
}

Stage::~Stage() = default;

std::vector<Param*> Stage::unit_params(int index) {
  if (index < num_units()) return unit(index).params();
  if (own_tied_weight_) return {own_tied_weight_.get()};
  return {};
}

Head& Stage::head() {
  if (head_ == nullptr) throw Failure("the head is asked of a stage that has none");
  return *head_;
}

Sizes Stage::rope_table_sizes() const {
  if (options_.model.position != PositionKind::rope || options_.has_positions) return {};
  return {std::ssize(options_.model.ropes()) * options_.seq_len, options_.model.rotary_dim() / 2};
}

Sizes Stage::rope_frequency_sizes() const {
  if (options_.model.position != PositionKind::rope || !options_.has_positions) return {};
  return {std::ssize(options_.model.ropes()) * (options_.model.rotary_dim() / 2)};
}

void Stage::bind_rope_tables(Ops& ops, Tensor cos, Tensor sin) {
  if (rope_table_sizes().num_dims() == 0) return;
  std::vector<std::int32_t> positions;
  if (options_.tokens && ops.computes_values())
    positions = positions_of_rank(options_.tokens->split, options_.tokens->rank);
  for (std::size_t i = 0; i < options_.model.ropes().size(); ++i)
    bind_rope(ops, i, {.cos = of_rope(cos, i), .sin = of_rope(sin, i)}, positions);
}

void Stage::bind_rope_frequencies(Ops& ops, Tensor frequencies) {
  if (rope_frequency_sizes().num_dims() == 0) return;
  for (std::size_t i = 0; i < options_.model.ropes().size(); ++i)
    bind_rope(ops, i, {.cos = {}, .sin = {}, .frequencies = of_rope(frequencies, i)}, {});
}

void Stage::bind_rope(Ops& ops, std::size_t i, RopeTables tables, std::span<const std::int32_t> positions) {
  const std::vector<RopeSpec> specs = options_.model.ropes();
  tables.rotation = rotation_of(options_.model, specs[i], options_.whole_seq_len());
  if (options_.model.has_growing_queries() && !specs[i].is_of_queries)
    tables.of_queries = &(*ropes_)[i + specs.size() / 2];
  (*ropes_)[i] = tables;
  upload_rope_tables(ops, tables.rotation, tables, positions);
}

Tensor Stage::of_rope(Tensor all, std::size_t i) const {
  const std::int64_t rows = all.size(0) / std::ssize(options_.model.ropes());
  return all.rows(static_cast<std::int64_t>(i) * rows, rows);
}

void Stage::forward(Context& context, int unit, Tensor x, Tensor y, Stash& stash) const {
  const int first = unit == whole_stage ? 0 : unit, last = unit == whole_stage ? num_units() - 1 : unit;
  for (int index = first; index <= last; ++index) {
    const bool ends = index == num_units() - 1;
    const Tensor unit_x = index == 0 ? x : stash.saved(this, index - 1);
    const Tensor unit_y = ends ? y
                               : stash.save({this, index, RowKind::local}, options_.dtype,
                                            {options_.num_local_tokens(), options_.model.hidden_size});
    units_[static_cast<std::size_t>(index)]->forward(context, unit_x, unit_y, stash);
  }
}

void Stage::backward(Context& context, int unit, const Gradients& gradients, Stash& stash) {
  for_units_in_reverse(unit, num_units(), [&](int index) {
    const Flow flow = flow_of(gradients, index, num_units());
    units_[static_cast<std::size_t>(index)]->backward(context, flow.dy, flow.dx, stash);
  });
}

void Stage::backward_input(Context& context, int unit, const Gradients& gradients, Stash& stash) const {
  for_units_in_reverse(unit, num_units(), [&](int index) {
    const Flow flow = flow_of(gradients, index, num_units());
    units_[static_cast<std::size_t>(index)]->backward_input(context, flow.dy, flow.dx, stash);
  });
}

void Stage::backward_weight(Context& context, int unit, Stash& stash) {
  for_units_in_reverse(unit, num_units(),
                       [&](int index) { units_[static_cast<std::size_t>(index)]->backward_weight(context, stash); });
}

}  // namespace echelon
