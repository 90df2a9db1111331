#include "verify/probe.h"

#include "engine/param_pieces.h"
#include "nn/head_split.h"

#include <type_traits>

namespace echelon {

namespace {

template <class A, class... Others>
constexpr bool is_one_of = (std::is_same_v<A, Others> || ...);

}  // namespace

class Probe::ProbeOps final : public Ops {
 public:
  ProbeOps(Probe& probe, Ops& inner) : probe_(probe), inner_(inner) {}
  void perform(const Operation& operation) override {
    probe_.before(operation);
    inner_.perform(operation);
    probe_.after(operation);
  }
  void upload(Tensor out, const void* host) override { inner_.upload(out, host); }
  void download(void* host, Tensor x) override { inner_.download(host, x); }
  [[nodiscard]] std::byte* host_address(const Tensor& x) const override { return inner_.host_address(x); }
  void publish() override { inner_.publish(); }

 private:
  Probe& probe_;
  Ops& inner_;
};

Probe::Probe(const TokenPlaces& places, int kv_replicas, ReadListener listener, Ops& ops, Mesh& mesh,
             const Interpose& inner)
    : places_(places),
      config_(places.config()),
      kv_replicas_(kv_replicas),
      kv_parts_(ops, config_.model, kv_replicas),
      listener_(std::move(listener)),
      plain_ops_(ops),
      plain_mesh_(mesh),
      ops_(std::make_unique<ProbeOps>(*this, ops)),
      inner_(inner ? inner(*ops_, mesh) : nullptr) {}

Probe::~Probe() = default;

Ops& Probe::ops() { return inner_ ? inner_->ops() : *ops_; }
Mesh& Probe::mesh() { return inner_ ? inner_->mesh() : plain_mesh_; }

void Probe::attach(RankRun& run) {
  params_ = run.model().part().params();
  if (inner_) inner_->attach(run);
}

void Probe::begins(const Action& action, ActionPart part) {
  if (action.kind == ActionKind::load_batch && part == ActionPart::perform) ++current_step_;
  action_ = action;
  is_listening_ = current_step_ == places_.step() && part == ActionPart::perform && is_compute(action.kind);
  partial_ = {};
  matmul_.clear();
  attention_.clear();
  num_targets_read_ = 0;
  if (inner_ && inner_->observer()) inner_->observer()->begins(action, part);
}

void Probe::ends() {
  is_listening_ = false;
  if (inner_ && inner_->observer()) inner_->observer()->ends();
}

void Probe::before(const Operation& operation) {
  if (!is_listening_) return;
  operation.visit([&](const auto& args) {
    using A = std::decay_t<decltype(args)>;
    is_of_forward_ = is_one_of<A, AttentionArgs, LayerNormArgs, RmsNormArgs, AddArgs>;
    if constexpr (std::is_same_v<A, MatmulArgs>) {
      is_of_forward_ = args.transpose_b;
      read_matmul(args);
    }
    if constexpr (std::is_same_v<A, LayerNormArgs> || std::is_same_v<A, RmsNormArgs>)
      read_norm(args.w, args.x, args.residual.data != nullptr);
    if constexpr (std::is_same_v<A, LayerNormBackwardArgs> || std::is_same_v<A, RmsNormBackwardArgs> ||
                  std::is_same_v<A, LayerNormBackwardInputArgs> || std::is_same_v<A, RmsNormBackwardInputArgs>)
      read_norm_gradient(args.w, args.dy);
    if constexpr (std::is_same_v<A, AttentionArgs>) read_attention(args);
    if constexpr (std::is_same_v<A, AttentionBackwardArgs>) read_attention_gradient(args);
    if constexpr (std::is_same_v<A, CrossEntropyArgs>) read_targets(args.targets);
    // A branch is added to the residual: at the end of a block nothing else reads it on this stage.
    if constexpr (std::is_same_v<A, AddArgs>)
      if (!matmul_.empty() && args.a.sizes.num_dims() == 2) read_branch(args.a);
    if constexpr (std::is_same_v<A, EmbeddingBackwardArgs>)
      read("gradient of the embedding's output", args.dy, 0, false);
  });
}

void Probe::after(const Operation& operation) {
  if (!is_listening_) return;
  const bool has_whole_groups = plain_mesh_.shape().degree(Axis::tp) == 1;
  if (kv_replicas_ > 1 && has_whole_groups) {
    if (const auto* attention = operation.get_if<AttentionBackwardArgs>()) kv_parts_.compute(*attention);
    if (const auto* rope = operation.get_if<RopeArgs>()) kv_parts_.turn(*rope);
  }
  if (has_whole_groups) return;
  if (const auto* product = operation.get_if<MatmulArgs>()) {
    const Param* weight = product->transpose_a ? nullptr : param_at(product->b);
    if (weight != nullptr && weight->slice.dim() == (product->transpose_b ? 1 : 0)) keep_partial(*weight, product->c);
  }
  if (const auto* embedding = operation.get_if<EmbeddingArgs>())
    if (const Param* weight = param_at(embedding->w)) keep_partial(*weight, embedding->y);
}

void Probe::read_matmul(const MatmulArgs& args) {
  const Param* weight = args.transpose_a ? nullptr : param_at(args.b);
  if (weight == nullptr) return;
  const bool is_forward = args.transpose_b;
  if (is_forward) matmul_ = weight->name;
  if (is_forward) num_added_ = 0;
  const std::int64_t first_column = weight->slice.entries(is_forward ? 1 : 0).first;
  // The head overwrites the logits with their gradient; they are too many to compare.
  const bool is_head = weight->name == "lm_head.weight" || weight->name == "model.embed_tokens.weight";
  if (!is_forward && read_kv_part(*weight, args.a)) return;
  if (is_forward || !(is_head || has_addends(weight->name)))
    read((is_forward ? "input of " : "gradient of the output of ") + weight->name, args.a, first_column, false);
}

// The last matmul of a mixture is its router's, or that of the shared expert, to which the others are added first.
void Probe::read_branch(Tensor y) {
  const std::size_t router = matmul_.rfind("gate.weight"), shared = matmul_.rfind("shared_expert.down_proj");
  std::string of = matmul_;
  if (router != std::string::npos && matmul_.ends_with(".mlp.gate.weight")) of = matmul_.substr(0, router) + "experts";
  if (shared != std::string::npos) of = matmul_.substr(0, shared) + (num_added_ == 0 ? "experts" : "all_experts");
  ++num_added_;
  read("output of " + of, y, 0, true);
}

void Probe::read_norm(Tensor weight, Tensor x, bool has_residual) {
  const Param* param = param_at(weight);
  if (param == nullptr || x.size(1) != config_.model.hidden_size ||
      param->global_sizes().num_elements() != config_.model.hidden_size)
    return;
  read((has_residual ? "branch before " : "input of ") + param->name, x, 0, true);
}

void Probe::read_norm_gradient(Tensor weight, Tensor dy) {
  const Param* param = param_at(weight);
  if (param == nullptr || read_kv_part(*param, dy) || has_addends(param->name)) return;
  if (param->name.ends_with("q_norm.weight") || param->name.ends_with("k_norm.weight"))
    return read_head_gradient(*param, dy);
  read("gradient of the output of " + param->name, dy, 0, true);
}

void Probe::read(const std::string& tensor, Tensor x, std::int64_t first_column, bool is_local) {
  const int tp = plain_mesh_.shape().degree(Axis::tp);
  const std::int64_t num_rows = config_.training.micro_batch_size * places_.rows_per_sequence();
  const bool is_split = is_local && config_.parallelism.sequence_parallel && tp > 1;
  if (x.size(0) != (is_split ? num_rows / tp : num_rows)) return;  // a chunk of the head's tokens, or single heads
  emit(tensor, {.first_row = is_split ? plain_mesh_.coordinate(Axis::tp) * x.size(0) : 0,
                .first_column = first_column,
                .num_columns = x.size(1),
                .values = downloaded(plain_ops_, x)});
}

void Probe::emit(const std::string& tensor, Read read, std::vector<std::int64_t> tokens) {
  if (tokens.empty()) tokens = places_.tokens_of(place());
  const auto first = tokens.begin() + read.first_row;
  read.name = {action_.kind != ActionKind::forward, tensor};
  read.is_recomputed = read.name.is_backward && is_of_forward_;
  read.rank = plain_mesh_.rank();
  read.stage = action_.stage;
  read.microbatch = action_.microbatch;
  read.tokens = {first, first + read.num_rows()};
  read.partial = &partial_;
  listener_(read);
}

// Of kv heads that several tp ranks hold, and of a router where each has features of all experts.
bool Probe::has_addends(const std::string& weight) const {
  const int tp = plain_mesh_.shape().degree(Axis::tp);
  if (weight.find(".self_attn.k_") != std::string::npos || weight.find(".self_attn.v_") != std::string::npos)
    return tp > 1 && !config_.model.has_latents() && kv_replicas(config_.model, tp) > 1;
  return tp > 1 && weight.ends_with(".mlp.gate.weight") && divides_experts_as_dense(config_.parallelism);
}

void Probe::keep_partial(const Param& weight, Tensor c) {
  partial_ = {weight.name, c.size(0), downloaded(plain_ops_, c)};
}

const Param* Probe::param_at(const Tensor& x) const {
  for (const Param* param : params_)
    if (param->value.data == x.data && x.data != nullptr) return param;
  return nullptr;
}

const Param* Probe::param_named(const std::string& name) const {
  for (const Param* param : params_)
    if (param->name == name) return param;
  return nullptr;
}

}  // namespace echelon
