#include "engine/tensor_collection.h"

#include "base/error.h"

namespace echelon {
namespace {

template <class T>
std::vector<double> widened(const std::vector<std::byte>& bytes, double factor) {
  const T* numbers = reinterpret_cast<const T*>(bytes.data());
  std::vector<double> wide(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if constexpr (std::is_same_v<T, bfloat16>)
      wide[i] = factor * static_cast<double>(static_cast<float>(numbers[i]));
    else
      wide[i] = factor * static_cast<double>(numbers[i]);
  }
  return wide;
}

std::vector<double> downloaded(Ops& ops, Tensor x, double factor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.num_bytes()));
  ops.download(bytes.data(), x);
  switch (x.dtype) {
    case DType::float32: return widened<float>(bytes, factor);
    case DType::float64: return widened<double>(bytes, factor);
    case DType::bfloat16: return widened<bfloat16>(bytes, factor);
    case DType::float16:
    case DType::int32: break;
  }
  throw Failure(fmt::format("a collection of tensors holds no {}", name_of(x.dtype)));
}

/// Index in the whole tensor of element `index` of this rank's slice; -1 in the padding.
std::int64_t global_index(const Param& param, std::int64_t index) {
  if (param.split_dim < 0) return index;
  const Sizes local = param.local_sizes();
  std::int64_t inner = 1;  // elements per entry of the split dim
  for (int dim = param.split_dim + 1; dim < local.num_dims(); ++dim) inner *= local[dim];
  const std::int64_t outer = index / (local[param.split_dim] * inner);
  const std::int64_t entry = index / inner % local[param.split_dim] + param.split_first;
  const std::int64_t whole = param.global_sizes[param.split_dim];
  return entry < whole ? (outer * whole + entry) * inner + index % inner : -1;
}

}  // namespace

void TensorCollection::add_values(RankModel& model, Ops& ops) {
  for (const Param* param : model.part().written_params()) add(*param, {0, param->value.num_elements()}, downloaded(ops, param->value.flat(), 1.0));
}

void TensorCollection::add_gradients(RankModel& model, Ops& ops, double factor) {
  for (const ShardedUnit& unit : model.part().units) {
    if (!unit.options().is_first_copy) continue;
    for (const Bucket& bucket : unit.buckets())
      for (const Segment& segment : bucket.segments) {
        const Range owned = overlap(segment, unit.owned(bucket));
        if (!segment.param->is_first_copy || owned.count == 0) continue;
        const Range local = {owned.first - segment.offset, owned.count};
        add(*segment.param, local, downloaded(ops, segment.param->grad.flat().rows(local.first, local.count), factor));
      }
  }
}

void TensorCollection::add(const Param& param, Range local, const std::vector<double>& numbers) {
  const std::lock_guard lock(mutex_);
  const auto size = static_cast<std::size_t>(param.global_sizes.num_elements());
  std::vector<double>& tensor = tensors_[param.name];
  std::vector<int>& count = counts_[param.name];
  tensor.resize(size);
  count.resize(size);
  for (std::int64_t i = 0; i < local.count; ++i) {
    const std::int64_t index = global_index(param, local.first + i);
    if (index < 0) continue;
    tensor[static_cast<std::size_t>(index)] = numbers[static_cast<std::size_t>(i)];
    ++count[static_cast<std::size_t>(index)];
  }
}

}  // namespace echelon
