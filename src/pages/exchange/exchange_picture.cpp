#include "pages/exchange/exchange_picture.h"

#include "blueprint/blueprint.h"
#include "predict/experts/read_expert_load.h"

#include <algorithm>
#include <span>
#include <variant>

namespace echelon {
namespace {

constexpr std::int64_t layer_D = 512, layer_F = 512, layer_T = 512;  // hidden, features, tokens

/// One layer; sizes only weigh its matmuls, and no memory is taken.
RunConfig config_of_layer(const ExchangeRequest& request) {
  RunConfig config;
  config.model = family_defaults(request.shared_ms > 0 ? Family::qwen2_moe : Family::mixtral);
  ModelSpec& model = config.model;
  model.hidden_size = layer_D;
  model.num_attention_heads = model.num_key_value_heads = 8;
  model.head_dim = layer_D / 8;
  model.num_hidden_layers = 1;
  model.intermediate_size = layer_F;
  model.vocab_size = 64;
  model.max_position_embeddings = layer_T;
  model.mixture.num_experts = 4 * request.num_ranks;
  model.mixture.num_experts_per_tok = 2;
  model.mixture.moe_intermediate_size = layer_F;
  if (request.shared_ms > 0) model.mixture.shared_expert_intermediate_size = layer_F;
  config.training.steps = 1;
  config.training.seq_len = layer_T;
  config.training.micro_batch_size = 1;
  config.training.global_batch_size = request.num_ranks;
  config.parallelism.data_parallel_shard_degree = request.num_ranks;
  config.parallelism.expert_parallel_degree = request.num_ranks;
  config.moe.dispatch_bound = request.dispatch_bound;
  config.expert_load = read_expert_load(request.load, config);
  return config;
}

bool is_experts_kind(OpKind kind) {
  return kind == OpKind::grouped_matmul || kind == OpKind::grouped_matmul_backward_weight;
}

/// Lays the events of a pass on two lanes, from its first row that leaves to its last that is back.
class TwoLanes {
 public:
  TwoLanes(const ExchangeRequest& request, const RunConfig& config) : request_(request) {
    const std::int64_t tokens = layer_T, rows = tokens * config.model.mixture.num_experts_per_tok;
    rows_bytes_ = rows * layer_D * size_of(config.training.dtype);
    experts_flops_ = 6 * rows * layer_D * layer_F;
    shared_flops_ = 6 * tokens * layer_D * layer_F;
  }

  ExchangePicture::Pass pass(std::string name, const std::vector<TraceEvent>& events) {
    pass_ = {.name = std::move(name)};
    num_dispatches_ = 0;
    computed_until_ = 0;
    ends_.clear();
    for (const TraceEvent& event : std::span(events).first(until_all_are_back(events))) {
      if (const auto* operation = std::get_if<OpRecord>(&event)) {
        if (has_left()) compute(*operation);
      } else if (const auto* started = std::get_if<CommRecord>(&event)) {
        ends_.push_back(started->purpose == RowPurpose::other ? 0 : exchange(*started));
      } else {
        const double end = ends_[std::get<CommWait>(event).start];
        computed_until_ = std::max(computed_until_, end);
        waited_ = waited_ || end > 0;
      }
    }
    pass_.end = computed_until_;
    return std::move(pass_);
  }
  [[nodiscard]] int num_dispatches() const { return num_dispatches_; }

 private:
  /// How many events there are up to the last wait for rows.
  [[nodiscard]] static std::size_t until_all_are_back(const std::vector<TraceEvent>& events) {
    std::vector<bool> are_rows;  // of communications
    std::size_t count = 0;
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (const auto* started = std::get_if<CommRecord>(&events[i]))
        are_rows.push_back(started->purpose != RowPurpose::other);
      else if (const auto* wait = std::get_if<CommWait>(&events[i]); wait != nullptr && are_rows[wait->start])
        count = i + 1;
    }
    return count;
  }

  [[nodiscard]] bool has_left() const { return !pass_.exchanged.empty(); }

  void compute(const OpRecord& operation) {
    const bool is_expert = is_experts_kind(operation.kind);
    const double seconds = is_expert ? request_.experts_ms * ratio(operation.flops, experts_flops_)
                           : multiplies_matrices(operation.kind)
                               ? request_.shared_ms * ratio(operation.flops, shared_flops_)
                               : 0;
    if (seconds <= 0) return;
    const char* const name = is_expert ? "experts" : "shared";
    std::vector<ExchangePicture::Bar>& bars = pass_.computed;
    if (bars.empty() || bars.back().name != name || bars.back().end < computed_until_)
      bars.push_back({name, computed_until_, computed_until_});
    bars.back().end = computed_until_ += seconds;
  }

  /// Returns its end. The weights of rows travel with them.
  double exchange(const CommRecord& record) {
    std::vector<ExchangePicture::Bar>& bars = pass_.exchanged;
    const double start = std::max(computed_until_, bars.empty() ? 0 : bars.back().end),
                 seconds = request_.exchange_ms * ratio(record.num_elements * size_of(record.dtype), rows_bytes_);
    if (bars.empty() || waited_ || bars.back().name != name_of(record.purpose)) {
      bars.push_back({std::string(name_of(record.purpose)), start, start});
      num_dispatches_ += record.purpose == RowPurpose::dispatch ? 1 : 0;
    }
    waited_ = false;
    return bars.back().end = start + seconds;
  }

  static double ratio(std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  }

  ExchangeRequest request_;
  std::int64_t rows_bytes_ = 0, experts_flops_ = 0, shared_flops_ = 0;
  ExchangePicture::Pass pass_;
  int num_dispatches_ = 0;
  double computed_until_ = 0;
  bool waited_ = false;       // since the exchange before started
  std::vector<double> ends_;  // of communications
};

}  // namespace

double ExchangePicture::Pass::exchange_ms() const {
  double sum = 0;
  for (const Bar& bar : exchanged) sum += bar.end - bar.start;
  return sum;
}

double ExchangePicture::Pass::exposed_ms() const {
  double sum = end;
  for (const Bar& bar : computed) sum -= bar.end - bar.start;
  return std::max(0.0, sum);
}

ExchangePicture exchange_picture(const ExchangeRequest& request) {
  const RunConfig config = config_of_layer(request);
  const Blueprint blueprint(config);
  const RankBlueprint rank = blueprint.rank(0);
  ExchangePicture picture = {.request = request};
  TwoLanes lanes(request, config);
  for (const Action& action : rank.program(ProgramKind::training)) {
    if (!is_compute(action.kind)) continue;
    const CallTrace& trace = rank.trace(ProgramKind::training).of(action);
    ExchangePicture::Pass pass = lanes.pass(std::string(name_of(action.kind)), trace.events);
    if (pass.exchanged.empty()) continue;  // of the embedding, or of the head
    if (action.kind == ActionKind::forward) picture.num_rounds = lanes.num_dispatches();
    picture.passes.push_back(std::move(pass));
  }
  return picture;
}

}  // namespace echelon
