#include "checkpoint/upcycled_weights.h"

#include "base/drawn_values.h"
#include "base/error.h"
#include "checkpoint/safetensors/convert_values.h"
#include "spec/families/family.h"

#include <algorithm>
#include <charconv>

namespace echelon {
namespace {

Family mixture_of(const std::filesystem::path& source, Family dense) {
  switch (dense) {
    case Family::llama:
    case Family::mistral: return Family::mixtral;
    case Family::qwen3: return Family::qwen3_moe;
    default: break;
  }
  throw Error(
      fmt::format("{}: model_type = '{}' has no mixture of experts with its attention (use a model of llama, "
                  "mistral or qwen3)",
                  source.string(), name_of(dense)));
}

ModelSpec upcycled(const std::filesystem::path& source, const ModelSpec& dense, const Upcycling& upcycling) {
  require(!dense.mixture.exists(), "{}: model_type = '{}' has experts already; --upcycle takes a dense model",
          source.string(), name_of(dense.family));
  ModelSpec model = dense;
  model.family = mixture_of(source, dense.family);
  model.mixture = family_defaults(model.family).mixture;
  model.mixture.num_experts = upcycling.num_experts;
  model.mixture.num_experts_per_tok = upcycling.num_experts_per_tok;
  model.mixture.moe_intermediate_size = dense.intermediate_size;
  model.mixture.norm_topk_prob = true;
  validate(model);
  return model;
}

std::int64_t parse_count(const std::string& text, std::string_view part) {
  std::int64_t count = 0;
  const char* const end = part.data() + part.size();
  const auto [last, error] = std::from_chars(part.data(), end, count);
  require(error == std::errc() && last == end && count >= 1,
          "--upcycle = '{}' is not a number of experts and one of choices (use 8,2)", text);
  return count;
}

}  // namespace

Upcycling parse_upcycling(const std::string& text) {
  const std::size_t comma = std::min(text.find(','), text.size());
  const std::string_view experts = std::string_view(text).substr(0, comma),
                         choices = std::string_view(text).substr(std::min(comma + 1, text.size()));
  const Upcycling upcycling = {parse_count(text, experts), parse_count(text, choices)};
  require(upcycling.num_experts_per_tok <= upcycling.num_experts,
          "--upcycle = '{}' has more choices than experts (use {},{})", text, upcycling.num_experts,
          upcycling.num_experts);
  return upcycling;
}

UpcycledWeights::UpcycledWeights(const std::filesystem::path& source, const Upcycling& upcycling)
    : dense_(source), spec_(upcycled(source, dense_.spec(), upcycling)) {}

void UpcycledWeights::read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const {
  constexpr std::string_view of_experts = ".mlp.experts.";
  const std::size_t at = name.find(of_experts);
  if (at != std::string::npos) {
    const std::string dense = name.substr(0, at) + ".mlp." + name.substr(at + of_experts.size());
    repeat(dense, slice, dtype, static_cast<std::byte*>(out));
  } else if (name.ends_with(".mlp.gate.weight")) {
    draw_router(name, slice, dtype, out);
  } else {
    dense_.read(name, slice, dtype, out);
  }
}

// Elements of [E, out, in] are those of [out, in], again and again.
void UpcycledWeights::repeat(const std::string& dense, const TensorSlice& slice, DType dtype, std::byte* out) const {
  const Sizes& stacked = slice.global_sizes();
  const TensorSlice matrix(Sizes{stacked[1], stacked[2]});
  const std::int64_t size = matrix.num_elements();
  slice.for_each_run([&](const Run& run) {
    for (std::int64_t i = 0, count = 0; i < run.count; i += count) {
      const std::int64_t first = (run.global + i) % size;
      count = std::min(run.count - i, size - first);
      dense_.read(dense, matrix.elements({first, count}), dtype, out + (run.local + i) * size_of(dtype));
    }
  });
}

// As a run with training.seed = 0 would draw it.
void UpcycledWeights::draw_router(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const {
  std::vector<double> values(static_cast<std::size_t>(slice.num_elements()));
  DrawnValues drawn(stream_called(name), 0);
  slice.for_each_run([&](const Run& run) {
    for (std::int64_t i = 0; i < run.count; ++i)
      values[static_cast<std::size_t>(run.local + i)] = spec_.initializer_range * drawn.normal_at(run.global + i);
  });
  convert_values(DType::float64, values.data(), dtype, out, std::ssize(values));
}

}  // namespace echelon
