#include "checkpoint/merged_weights.h"

#include "base/error.h"
#include "checkpoint/base_digest.h"
#include "checkpoint/hf/adapter_reader.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/safetensors/convert_values.h"
#include "checkpoint/state/saved_config.h"
#include "checkpoint/state/state_reader.h"

#include <algorithm>

namespace echelon {

MergedWeights::MergedWeights(const std::filesystem::path& adapters, const std::filesystem::path& base) {
  if (is_checkpoint(adapters))
    open_checkpoint(adapters, base);
  else
    open_folder(adapters, base);
}

void MergedWeights::open_base(const std::filesystem::path& base) {
  require(!is_adapter_folder(base), "'{}' has adapters, which are no base (use echelon convert --merge first)",
          base.string());
  require(!is_checkpoint(base) || !config_of(read_manifest(base), base).lora.exists(),
          "'{}' is a checkpoint with adapters, which are no base (use echelon convert --merge first)", base.string());
  base_folder_ = base;
  base_ = std::make_shared<const ModelReader>(base);
}

void MergedWeights::open_checkpoint(const std::filesystem::path& adapters, const std::filesystem::path& base) {
  const auto reader = std::make_shared<const StateReader>(adapters);
  const RunConfig config = config_of(reader->manifest(), adapters);
  require(config.lora.exists(), "{} is a checkpoint without adapters", adapters.string());
  const std::filesystem::path& own = config.checkpoint.initial_load_path;
  require(!base.empty() || !own.empty(),
          "{} has adapters of a model that its run drew at random: there is no folder to merge them with",
          adapters.string());
  open_base(base.empty() ? own : base);
  require(reader->manifest().base == digest_of_base(*base_), "{} has adapters of another base than '{}'{}",
          adapters.string(), base_folder_.string(),
          own.empty() ? "" : fmt::format(" (they are of '{}')", own.string()));
  for (const NamedShape& parameter : adapter_parameters(spec(), config.lora))
    reader->require_parameter(parameter.name, parameter.sizes);
  lora_ = config.lora;
  read_adapter_ = [reader](const std::string& name, const TensorSlice& slice, double* out) {
    reader->read({.parameter = name, .state = "weight", .dtype = DType::float64, .slice = slice},
                 reinterpret_cast<std::byte*>(out));
  };
}

void MergedWeights::open_folder(const std::filesystem::path& adapters, const std::filesystem::path& base) {
  open_base(base.empty() ? std::filesystem::path(read_adapter_base(adapters)) : base);
  const auto reader = std::make_shared<const AdapterReader>(adapters, spec());
  const AdapterConfig& config = reader->config();
  require(!config.base_digest || *config.base_digest == digest_of_base(*base_),
          "{} has adapters of another base than '{}'{}", adapters.string(), base_folder_.string(),
          config.base.empty() ? "" : fmt::format(" (they are of '{}')", config.base));
  lora_ = config.lora;
  read_adapter_ = [reader](const std::string& name, const TensorSlice& slice, double* out) {
    reader->read(name, slice, DType::float64, out);
  };
}

const ModelSpec& MergedWeights::spec() const { return base_->spec(); }

std::vector<float> MergedWeights::router_bias() const { return base_->router_bias(); }

std::shared_ptr<const MergedWeights::Matrices> MergedWeights::matrices_of(const std::string& layer,
                                                                          const Sizes& weight) const {
  const std::lock_guard lock(last_->mutex);
  if (last_->matrices != nullptr && last_->matrices->layer == layer) return last_->matrices;
  const auto values_of = [&](const std::string& name, const Sizes& sizes) {
    std::vector<double> values(static_cast<std::size_t>(sizes.num_elements()));
    read_adapter_(name, TensorSlice(sizes), values.data());
    return values;
  };
  last_->matrices =
      std::make_shared<const Matrices>(Matrices{.layer = layer,
                                                .a = values_of(name_of_a(spec(), layer), {lora_.rank, weight[1]}),
                                                .b = values_of(layer + ".lora_B.weight", {weight[0], lora_.rank})});
  return last_->matrices;
}

void MergedWeights::read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const {
  constexpr std::string_view suffix = ".weight";
  const std::string layer = name.substr(0, name.size() - std::min(name.size(), suffix.size()));
  if (!name.ends_with(suffix) || layer_of(layer) == layer || !has_adapter(lora_, spec(), layer_of(layer)))
    return base_->read(name, slice, dtype, out);
  const Sizes& sizes = slice.global_sizes();
  const std::shared_ptr<const Matrices> of = matrices_of(layer, sizes);
  const std::int64_t in = sizes[1], r = lora_.rank, chunk = 1 << 20;
  std::vector<double> sums;
  for (std::int64_t first = 0; first < slice.num_elements(); first += chunk) {
    const TensorSlice part = slice.elements({first, std::min(chunk, slice.num_elements() - first)});
    sums.resize(static_cast<std::size_t>(part.num_elements()));
    base_->read(name, part, DType::float64, sums.data());
    part.for_each_run([&](const Run& run) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        const std::int64_t row = (run.global + i) / in, column = (run.global + i) % in;
        double sum = 0;
        for (std::int64_t k = 0; k < r; ++k)
          sum += of->b[static_cast<std::size_t>(row * r + k)] * of->a[static_cast<std::size_t>(k * in + column)];
        sums[static_cast<std::size_t>(run.local + i)] += lora_.scale() * sum;
      }
    });
    convert_values(DType::float64, reinterpret_cast<const std::byte*>(sums.data()), dtype,
                   static_cast<std::byte*>(out) + first * size_of(dtype), part.num_elements());
  }
  const std::int64_t count = slice.num_elements();
  require(first_not_finite(dtype, out, count) == count, "the merged '{}' has a value that is NaN or infinite in {}",
          name, name_of(dtype));
}

}  // namespace echelon
