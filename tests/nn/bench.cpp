#include "nn/bench.h"

#include "base/error.h"
#include "nn/init.h"
#include "ops/trace/trace_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

namespace echelon::test {
namespace {

std::mt19937_64 generator_for(const std::string& name) { return std::mt19937_64(std::hash<std::string>{}(name)); }

std::vector<double> normal_numbers(const std::string& name, std::int64_t count, double spread) {
  auto generator = generator_for(name);
  std::normal_distribution<double> normal(0.0, spread);
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers) number = normal(generator);
  return numbers;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm(const std::vector<double>& a) { return std::sqrt(dot(a, a)); }

void backward(const Passes& passes, BackwardKind kind, Context& context, Tensor dy, Tensor dx, Stash& stash,
              Tensor input_memory) {
  if (kind == BackwardKind::fused) return passes.backward(context, dy, dx, stash);
  passes.backward_input(context, dy, dx, stash);
  // The contract lets the caller overwrite dy from here on, and what was saved for backward_input alone.
  for (const Tensor& done : {dy, input_memory})
    if (done.data != nullptr) context.ops.fill(done, std::nan(""));
  passes.backward_weight(context, stash);
}

RegionBytes used_bytes(const Stash& stash, const Stack& workspace) {
  return {.slot = stash.slot().peak_bytes(),
          .input_slot = stash.input_slot().peak_bytes(),
          .gradient_slot = stash.gradient_slot().peak_bytes(),
          .workspace = workspace.peak_bytes()};
}

/// Forward, and this backward if there is one.
RegionBytes trace_passes(const Passes& passes, const LayerOptions& options, Mesh& mesh, Ops& ops,
                         std::optional<BackwardKind> kind) {
  for (Param* param : passes.params) {
    param->value = {nullptr, options.dtype, param->local_sizes()};
    param->grad = {nullptr, options.grad_dtype, param->local_sizes()};
  }
  Stack workspace;
  Stash stash;
  const Tensor tokens = {nullptr, DType::int32, {options.num_tokens()}};
  const Tensor x = {nullptr, options.dtype, {options.num_local_tokens(), options.model.hidden_size}};
  const Tensor loss_sum = {nullptr, DType::float64, {1}};
  Context context = {ops,
                     mesh,
                     workspace,
                     {.tokens = tokens, .targets = tokens, .loss_sum = loss_sum, .needs_gradient = kind.has_value()}};
  if (!options.windows.empty())
    context.microbatch.key_begin = {nullptr, DType::int32, {std::ssize(options.windows) * options.num_tokens()}};
  passes.forward(context, x, x, stash);
  if (kind) backward(passes, *kind, context, x, x, stash, {});
  EXPECT_EQ(workspace.used_bytes(), 0) << "workspace was taken outside a scope";
  return used_bytes(stash, workspace);
}

/// Parameters with gradients, the batch, five activations, and the regions of a call.
std::int64_t needed_bytes(const Passes& passes, const LayerOptions& options, const std::vector<RegionBytes>& calls) {
  std::int64_t bytes = 3 * aligned(options.num_tokens() * size_of(DType::float64));
  for (const Param* param : passes.params)
    for (const DType dtype : {options.dtype, options.grad_dtype})
      bytes += aligned(param->local_sizes().num_elements() * size_of(dtype));
  bytes += 5 * aligned(options.num_local_tokens() * options.model.hidden_size * size_of(options.dtype));
  std::int64_t of_call = 0;
  for (const RegionBytes& call : calls) of_call = std::max(of_call, call.sum());
  return bytes + of_call;
}

}  // namespace

Comm& LonelyMesh::comm(const Group& group) {
  throw Failure(fmt::format("a layer with tp = 1 asked for the group '{}'", name_of(group)));
}

Batch random_batch(const LayerOptions& options, unsigned seed, int ignore_every) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(options.model.vocab_size) - 1);
  Batch batch;
  for (std::int64_t i = 0; i < options.num_tokens(); ++i) {
    batch.tokens.push_back(token(generator));
    const std::int32_t target = token(generator);
    batch.targets.push_back(generator() % static_cast<unsigned>(ignore_every) == 0 ? ignored_target : target);
  }
  return batch;
}

std::vector<double> numbers_of(const Tensor& tensor) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
    switch (tensor.dtype) {
      case DType::float64: numbers.push_back(tensor.as<double>()[i]); break;
      case DType::float32: numbers.push_back(static_cast<double>(tensor.as<float>()[i])); break;
      case DType::bfloat16: numbers.push_back(static_cast<double>(static_cast<float>(tensor.as<bfloat16>()[i]))); break;
      case DType::float16:
      case DType::int32:
      case DType::int16: throw Failure("not a number of ours");
    }
  }
  return numbers;
}

void set_numbers(const Tensor& tensor, const std::vector<double>& numbers) {
  for (std::int64_t i = 0; i < tensor.num_elements(); ++i) {
    const double number = numbers[static_cast<std::size_t>(i)];
    switch (tensor.dtype) {
      case DType::float64: tensor.as<double>()[i] = number; break;
      case DType::float32: tensor.as<float>()[i] = static_cast<float>(number); break;
      case DType::bfloat16: tensor.as<bfloat16>()[i] = bfloat16(static_cast<float>(number)); break;
      case DType::float16:
      case DType::int32:
      case DType::int16: throw Failure("not a number of ours");
    }
  }
}

std::vector<double> random_parameter(const Param& param, double spread) {
  Param drawn = param;
  drawn.init_std = spread;
  std::vector<double> numbers(static_cast<std::size_t>(param.local_sizes().num_elements()));
  initialize(drawn, drawn.slice, 11, DType::float64, numbers.data());
  for (double& number : numbers) number += param.init_value;
  return numbers;
}

Passes passes_of(Layer& layer) {
  return {
      .params = layer.params(),
      .forward = [&layer](Context& context, Tensor x, Tensor y, Stash& stash) { layer.forward(context, x, y, stash); },
      .backward = [&layer](Context& context, Tensor dy, Tensor dx,
                           Stash& stash) { layer.backward(context, dy, dx, stash); },
      .backward_input = [&layer](Context& context, Tensor dy, Tensor dx,
                                 Stash& stash) { layer.backward_input(context, dy, dx, stash); },
      .backward_weight = [&layer](Context& context, Stash& stash) { layer.backward_weight(context, stash); }};
}

Passes passes_of(Stage& stage, Calls calls) {
  std::vector<Param*> params;
  for (int index = 0; index <= stage.num_units(); ++index)
    for (Param* param : stage.unit_params(index)) params.push_back(param);
  std::vector<int> units = {-1};
  if (calls == Calls::by_unit) {
    units.clear();
    for (int index = stage.num_units() - 1; index >= 0; --index) units.push_back(index);
  }
  const auto gradients = [](Context& context, Tensor dy, Tensor dx) {
    const Stage::Gradients taken = {
        dy, dx, {context.workspace.take(dy.dtype, dy.sizes), context.workspace.take(dy.dtype, dy.sizes)}};
    for (const Tensor& tensor : taken.flow) context.ops.fill(tensor, std::nan(""));
    return taken;
  };
  // With three units or more the gradient alternates between the two tensors.
  const auto expect_both_used = [&stage](const Stage::Gradients& of_stage) {
    for (const Tensor& tensor : of_stage.flow)
      EXPECT_FALSE(stage.num_units() >= 3 && tensor.data != nullptr && std::isnan(numbers_of(tensor)[0]));
  };
  return {.params = params,
          .forward = [&stage](Context& context, Tensor x, Tensor y,
                              Stash& stash) { stage.forward(context, -1, x, y, stash); },
          .backward =
              [=, &stage](Context& context, Tensor dy, Tensor dx, Stash& stash) {
                const Stack::Scope scope(context.workspace);
                const Stage::Gradients of_stage = gradients(context, dy, dx);
                for (const int unit : units) stage.backward(context, unit, of_stage, stash);
                expect_both_used(of_stage);
              },
          .backward_input =
              [=, &stage](Context& context, Tensor dy, Tensor dx, Stash& stash) {
                const Stack::Scope scope(context.workspace);
                const Stage::Gradients of_stage = gradients(context, dy, dx);
                for (const int unit : units) stage.backward_input(context, unit, of_stage, stash);
                expect_both_used(of_stage);
              },
          .backward_weight =
              [=, &stage](Context& context, Stash& stash) {
                for (const int unit : units) stage.backward_weight(context, unit, stash);
              }};
}

Tables::Tables(const LayerOptions& options) {
  if (options.model.position != PositionKind::rope) return;
  const std::vector<RopeSpec> ropes = options.model.ropes();
  const std::int64_t T = options.seq_len;
  const DType dtype = accumulate_dtype(options.dtype);
  Stack stack = arena.region(0, arena.num_bytes());
  cos = stack.take(dtype, {std::ssize(ropes) * T, options.model.rotary_dim() / 2});
  sin = stack.take(dtype, cos.sizes);
  const std::size_t index = options.model.rope_index(options.window);
  const auto bind = [&](std::size_t i, RopeTables& tables) {
    const std::int64_t first = static_cast<std::int64_t>(i) * T;
    tables = {.cos = cos.rows(first, T), .sin = sin.rows(first, T)};
    upload_rope_tables(*make_reference_ops(), rotation_of(options.model, ropes[i], T), tables);
  };
  bind(index, rope);
  if (!options.model.has_growing_queries()) return;
  bind(index + ropes.size() / 2, rope_of_queries);
  rope.of_queries = &rope_of_queries;
}

RegionBytes measure(const Passes& passes, const LayerOptions& options, Mesh& mesh, BackwardKind kind) {
  TraceOps ops;
  return measure(passes, options, mesh, kind, ops);
}

RegionBytes measure(const Passes& passes, const LayerOptions& options, Mesh& mesh, BackwardKind kind, Ops& ops) {
  return trace_passes(passes, options, mesh, ops, kind);
}

RegionBytes measure_evaluation(const Passes& passes, const LayerOptions& options, Mesh& mesh) {
  TraceOps ops;
  return trace_passes(passes, options, mesh, ops, std::nullopt);
}

Bench::Bench(Passes passes, const LayerOptions& options, Mesh& mesh, Mesh& trace_mesh, std::unique_ptr<Ops> ops)
    : passes_(std::move(passes)),
      options_(options),
      mesh_(mesh),
      ops_(std::move(ops)),
      evaluation_bytes_(measure_evaluation(passes_, options, trace_mesh)),
      bytes_{measure(passes_, options, trace_mesh, BackwardKind::fused),
             measure(passes_, options, trace_mesh, BackwardKind::split)},
      arena_(needed_bytes(passes_, options, {evaluation_bytes_, bytes_[0], bytes_[1]})),
      memory_(arena_.region(0, arena_.num_bytes())) {
  for (Param* param : passes_.params) {
    param->value = memory_.take(options.dtype, param->local_sizes());
    param->grad = memory_.take(options.grad_dtype, param->local_sizes());
    set_numbers(param->value, random_parameter(*param));
  }
  tokens_ = memory_.take(DType::int32, {options.num_tokens()});
  targets_ = memory_.take(DType::int32, {options.num_tokens()});
  loss_sum_ = memory_.take(DType::float64, {1});
  set_batch(random_batch(options));
  const Sizes sizes = {options.num_local_tokens(), options.model.hidden_size};
  for (Tensor* tensor : {&x_, &y_, &dx_, &dy_}) *tensor = memory_.take(options.dtype, sizes);
  // Drawn for all tokens, of which this rank takes its own: so all layouts compute the same thing.
  const auto local = [&](const std::string& name, double spread) {
    const auto all = normal_numbers(name, options.num_tokens() * options.model.hidden_size, spread);
    const auto first = options.sequence_parallel ? options.tp_rank * x_.num_elements() : 0;
    return std::vector<double>(all.begin() + first, all.begin() + first + x_.num_elements());
  };
  set_numbers(x_, local("x", 1.0));
  set_numbers(dy_, local("dy", 1.0));
  set_numbers(y_, std::vector<double>(static_cast<std::size_t>(y_.num_elements()), 0.0));
}

void Bench::set_batch(const Batch& batch) {
  ops_->upload(tokens_, batch.tokens.data());
  ops_->upload(targets_, batch.targets.data());
  key_begin_ = batch.key_begin;
}

Context Bench::context(Stack& workspace, bool needs_gradient) {
  const Tensor key_begin = {reinterpret_cast<std::byte*>(key_begin_.data()), DType::int32, {std::ssize(key_begin_)}};
  return {*ops_,
          mesh_,
          workspace,
          {.tokens = tokens_,
           .targets = targets_,
           .key_begin = key_begin_.empty() ? Tensor() : key_begin,
           .loss_sum = loss_sum_,
           .gradient_scale = gradient_scale,
           .needs_gradient = needs_gradient}};
}

void Bench::forward() {
  const Stack::Scope scope(memory_);
  const RegionBytes bytes = evaluation_bytes_;
  const auto region = [&](std::int64_t num_bytes) {
    return Stack(memory_.take(DType::float32, {num_bytes / 4}).data, num_bytes);
  };
  Stack workspace = region(bytes.workspace);
  Stash stash(region(bytes.slot), region(bytes.input_slot));
  Context now = context(workspace, false);
  ops_->fill(loss_sum_, 0.0);
  passes_.forward(now, x_, y_, stash);
}

RegionBytes Bench::run(BackwardKind kind) {
  const Stack::Scope scope(memory_);
  const RegionBytes bytes = bytes_[static_cast<std::size_t>(kind)];
  const auto poisoned = [&](std::int64_t num_bytes) {
    const Tensor tensor = memory_.take(DType::float32, {num_bytes / 4});
    ops_->fill(tensor, std::nan(""));  // whoever reads what it has not written shows
    return tensor;
  };
  const auto region = [&](std::int64_t num_bytes) { return Stack(poisoned(num_bytes).data, num_bytes); };
  Stack workspace = region(bytes.workspace);
  const Tensor input_memory = poisoned(bytes.input_slot);
  Stash stash(region(bytes.slot), Stack(input_memory.data, bytes.input_slot), region(bytes.gradient_slot));
  Context now = context(workspace, true);
  const Tensor dy = memory_.take(dy_.dtype, dy_.sizes);
  ops_->copy(dy, dy_);
  ops_->fill(loss_sum_, 0.0);
  ops_->fill(dx_, std::nan(""));
  for (Param* param : passes_.params) ops_->fill(param->grad, 0.0);
  passes_.forward(now, x_, y_, stash);
  backward(passes_, kind, now, dy, dx_, stash, input_memory);
  return used_bytes(stash, workspace);
}

double Bench::objective() {
  forward();
  return dot(numbers_of(y_), numbers_of(dy_)) + gradient_scale * loss_sum();
}

double finite_difference_error(Bench& bench, std::string& worst) {
  bench.run(BackwardKind::fused);
  struct Target {
    std::string name;
    Tensor value;
    std::vector<double> gradient;
  };
  std::vector<Target> targets;
  for (Param* param : bench.params()) targets.push_back({param->name, param->value, numbers_of(param->grad)});
  const std::vector<double> dx = numbers_of(bench.dx());
  if (!std::isnan(dx[0])) targets.push_back({"x", bench.x(), dx});  // the first layer has no dx

  double largest = 0;
  for (const Target& target : targets) {
    const std::vector<double> start = numbers_of(target.value);
    // Even trials go along random directions, odd ones along single entries.
    for (int trial = 0; trial < 6; ++trial) {
      const std::string name = target.name + std::to_string(trial);
      auto direction = normal_numbers(name, target.value.num_elements(), 1.0);
      if (trial % 2 == 1) {
        std::fill(direction.begin(), direction.end(), 0.0);
        direction[generator_for(name)() % direction.size()] = 1.0;
      }
      const auto shifted = [&](double step) {
        std::vector<double> moved = start;
        for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
        set_numbers(target.value, moved);
        return bench.objective();
      };
      const double h = 1e-3 / norm(direction);
      const double difference = (8.0 * (shifted(h) - shifted(-h)) - (shifted(2 * h) - shifted(-2 * h))) / (12.0 * h);
      set_numbers(target.value, start);
      const double error =
          std::abs(difference - dot(target.gradient, direction)) / (norm(target.gradient) * norm(direction) + 1.0);
      if (error > largest)
        worst = fmt::format("{}: difference {}, gradient {}", name, difference, dot(target.gradient, direction));
      largest = std::max(largest, error);
    }
  }
  return largest;
}

}  // namespace echelon::test
