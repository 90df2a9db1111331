// What attention sends over the ranks of context parallelism, by formulas (docs/internals/context.md), against the
// trace and against what the transport counted. Where documents leave rows out: context_documents_test.cpp.
#include "pages/context_parallel/context_picture.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <span>

namespace echelon::testing {
namespace {

/// One case of the grid: 8 query heads, K kv heads.
struct Case {
  ContextMethod method;
  int cp, u;
  std::int64_t K;
  DType dtype;
  BlockOperations recompute;
  int seq_len;
  LoadBalancer balancer;
  int tp = 1;  // with sequence parallelism
  bool float8 = false;
  int rows = 0;  // of a rank, where these make it more than ceil(T / cp)

  // One alone, so that sequence parallelism divides the rows of each.
  [[nodiscard]] int num_sequences() const { return tp > 1 ? 1 : 2; }
};

RunConfig run_of(const Case& of) {
  RunConfig config = config_of({.tp = of.tp,
                                .sequence_parallel = of.tp > 1,
                                .microbatches = 1,
                                .layers = 1,
                                .documents = reads_documents(of.balancer),
                                .cp = of.cp,
                                .balancer = of.balancer,
                                .seq_len = of.seq_len,
                                .method = of.method,
                                .ulysses = of.method == ContextMethod::ulysses_ring ? of.u : 0,
                                .recompute = of.recompute});
  config.model.num_key_value_heads = of.K;
  config.training.micro_batch_size = config.training.global_batch_size = of.num_sequences();
  if (of.float8) {
    config.training.linear_dtype = LinearDType::float8;
    config.model.head_dim = 16;
    config.model.hidden_size = 128;
    config.model.intermediate_size = 64;
  }
  config.training.dtype = of.dtype;
  config.training.steps = 1;
  config.lr_scheduler.warmup_steps = 0;
  return config;
}

/// Of one forward pass and one backward pass, without what recomputation sends again.
struct Bytes {
  double forward, backward;
};

int least_rows(const Case& of) { return (of.seq_len + of.cp - 1) / of.cp; }

// With b bytes of a rank's keys and values and q of its queries. T_r rows with padding count.
Bytes formula(const Case& of) {
  const double rows = std::max(of.rows, least_rows(of)), size = static_cast<double>(size_of(of.dtype)),
               of_sum = static_cast<double>(size_of(accumulate_dtype(of.dtype)));
  const double B = of.num_sequences(), C = of.float8 ? 16 : 4, q = B * rows * 8 / of.tp * C * size,
               K = static_cast<double>(of.K) / of.tp, b = 2 * B * rows * K * C * size, cp = of.cp, u = of.u, r = cp / u;
  const double x = u > K ? (u - 1) / K * b : (u - 1) / u * b, of_q = (u - 1) / u * q;
  const double block = b * std::max(1.0, u / K), gradients = block / size * of_sum;
  switch (of.method) {
    case ContextMethod::ring: return {(cp - 1) * b, (cp - 1) * (b + b / size * of_sum)};
    case ContextMethod::all_gather: return {(cp - 1) * b, 2 * (cp - 1) * b};
    case ContextMethod::ulysses: return {2 * of_q + x, 4 * of_q + 2 * x};
    case ContextMethod::ulysses_ring:
      return {2 * of_q + x + (r - 1) * block, 4 * of_q + 2 * x + (r - 1) * (block + gradients)};
  }
  return {};
}

/// Forward, as the picture has it: rows to each other rank of a group, and blocks to the next one or to all.
double drawn_bytes(const ContextPicture& picture, const RunConfig& config) {
  const ExchangedRows rows = exchanged_rows(picture);
  const std::int64_t to_group =
                         (picture.exchange.head_ranks - 1) * (rows.queries + rows.keys + rows.values + rows.results),
                     of_keys = 2 * picture.block_rows * picture.heads_of(0).num_kv_heads;
  return static_cast<double>((to_group + (picture.num_places() - 1) * of_keys) * config.training.micro_batch_size *
                             config.model.head_dim * size_of(config.training.dtype));
}

std::int64_t sent_over_context(const std::map<Group, std::int64_t>& sent) {
  std::int64_t bytes = 0;
  for (const auto& [group, of_group] : sent)
    if (group.axes == AxisSet{Axis::cp}) bytes += of_group;
  return bytes;
}

std::int64_t traced(const RankBlueprint& rank, ProgramKind kind) {
  std::map<Group, std::int64_t> sent;
  for (const Action& action : rank.program(kind))
    for (const CommRecord& comm : rank.trace(kind).of(action).communications()) sent[comm.group] += comm.sent_bytes;
  return sent_over_context(sent);
}

/// The same of whole sequences, of which all rows travel.
Case without_documents(Case of) {
  of.balancer = LoadBalancer::striped;
  return of;
}

void expect_formulas(const Case& of) {
  const RunConfig config = run_of(of);
  const auto [forward, backward] = formula(of);
  const double again = of.recompute.empty() ? 0 : forward;
  SCOPED_TRACE(fmt::format("{} cp {} u {} K {} {} recomputes {} T {} {} tp {} float8 {}", name_of(of.method), of.cp,
                           of.u, of.K, name_of(of.dtype), names_of(of.recompute).size(), of.seq_len,
                           name_of(of.balancer), of.tp, of.float8));
  const Blueprint blueprint(config);
  EXPECT_EQ(static_cast<double>(traced(blueprint.rank(of.cp * of.tp - 1), ProgramKind::evaluation)), forward);
  EXPECT_EQ(drawn_bytes(context_picture(blueprint, {0, of.seq_len}), config), forward);
  std::mutex mutex;
  (void)run_training(config, {.at_end = [&](const RankView& rank) {
                       const std::scoped_lock lock(mutex);
                       EXPECT_EQ(static_cast<double>(traced(rank.run.blueprint(), ProgramKind::training)),
                                 forward + again + backward);
                       const double all = 2 * forward + again + backward;  // a step and an evaluation
                       const auto sent = static_cast<double>(sent_over_context(rank.mesh.sent_bytes()));
                       if (rank.run.blueprint().part().options.skips_unseen_keys)
                         EXPECT_LE(sent, all) << "a ring within documents";
                       else
                         EXPECT_EQ(sent, all);
                     }});
}

std::vector<Case> grid_of_methods() {
  using enum ContextMethod;
  std::vector<Case> cases;
  const std::vector<BlockOperations> recomputed = {{}, attention_internals, whole_block};
  using enum LoadBalancer;
  const LoadBalancer balancers[] = {headtail, packed, per_document, packed, striped};
  const DType dtypes[] = {DType::float64, DType::float32, DType::bfloat16, DType::float16};
  int index = 0;
  const auto add = [&](ContextMethod method, int cp, int u, std::int64_t K) {
    for (const int seq_len : {24, 13}) {
      cases.push_back({method, cp, u, K, dtypes[index / 2 % 4], recomputed[static_cast<std::size_t>(index % 3)],
                       seq_len, balancers[index % 5]});
      ++index;
    }
  };
  for (const std::int64_t K : {1, 2, 8}) {
    add(ring, 3, 1, K);
    add(all_gather, K == 2 ? 5 : 2, 1, K);
    add(ulysses, 2, 2, K);
    add(ulysses, K == 2 ? 8 : 4, K == 2 ? 8 : 4, K);
    add(ulysses_ring, 4, 2, K);
    add(ulysses_ring, K == 2 ? 6 : 8, K == 2 ? 2 : 4, K);
  }
  add(ulysses_ring, 4, 1, 2);
  add(ulysses_ring, 4, 4, 4);
  return cases;
}

void expect_all_formulas(std::span<const Case> cases) {
  for (const Case& each : cases) {
    expect_formulas(each);
    if (reads_documents(each.balancer)) expect_formulas(without_documents(each));
  }
}

// Forty combinations of method, degrees, kv heads, format, recomputation, padding and balancer.
TEST(ContextTraffic, IsTheFormulasInTraceAndTransport) {
  const std::vector<Case> cases = grid_of_methods();
  EXPECT_GE(cases.size(), 40U);
  expect_all_formulas(cases);
}

// Sequence parallelism divides a rank's rows by tp; in float8 the rows of a microbatch are blocks of 16.
TEST(ContextTraffic, CountsRowsThatOtherAxesAndFloat8Add) {
  using enum ContextMethod;
  using enum LoadBalancer;
  using enum DType;
  const Case cases[] = {
      {ring, 3, 1, 2, float32, {}, 13, headtail, 2, false, 6},
      {all_gather, 2, 1, 4, bfloat16, attention_internals, 13, packed, 2, false, 8},
      {ulysses, 2, 2, 4, float64, whole_block, 13, striped, 2, false, 8},
      {ulysses_ring, 4, 2, 8, float32, {}, 17, per_document, 2, false, 6},
      {ring, 3, 1, 2, bfloat16, whole_block, 13, headtail, 1, true, 8},
      {all_gather, 2, 1, 8, float32, {}, 24, striped, 1, true, 16},
      {ulysses, 4, 4, 2, bfloat16, attention_internals, 13, packed, 1, true, 8},
      {ulysses_ring, 4, 2, 8, float32, whole_block, 24, per_document, 1, true, 8},
      {ring, 2, 1, 4, bfloat16, {}, 13, striped, 2, true, 16},
      {ulysses_ring, 4, 2, 2, bfloat16, {}, 17, packed, 2, true, 16},
  };
  for (const Case& each : cases) EXPECT_GT(each.rows, least_rows(each));
  expect_all_formulas(cases);
}

}  // namespace
}  // namespace echelon::testing
