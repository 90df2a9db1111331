#include "nn/sharding.h"

namespace echelon {
namespace {

Param sliced(const std::string& name, const Sizes& global_sizes, int dim, Slice slice) {
  Param param;
  param.name = name;
  param.slice = TensorSlice(global_sizes, dim, {slice.first, slice.count});
  return param;
}

}  // namespace

Slice vocabulary_slice(const LayerOptions& options) {
  const std::int64_t multiple = options.device.vocabulary_multiple, of_all = multiple * options.tp;
  const std::int64_t count = (options.model.vocab_size + of_all - 1) / of_all * multiple;
  return {options.tp_rank * count, count};
}

Param row_slice_of_matrix(const LayerOptions& options, const std::string& name, Sizes global_sizes, Slice rows) {
  Param param = sliced(name, global_sizes, 0, rows);
  param.init_std = options.model.initializer_range;
  return param;
}

Param column_slice_of_matrix(const LayerOptions& options, const std::string& name, Sizes global_sizes, Slice columns) {
  Param param = sliced(name, global_sizes, 1, columns);
  param.init_std = options.model.initializer_range;
  return param;
}

Param slice_of_bias(const std::string& name, std::int64_t global_size, Slice rows) {
  Param param = sliced(name, {global_size}, 0, rows);
  param.decays = false;
  return param;
}

Param replicated(const LayerOptions& options, const std::string& name, Sizes sizes) {
  Param param;
  param.name = name;
  param.slice = TensorSlice(sizes);
  if (options.sequence_parallel && options.tp > 1) param.groups.partial = tp_group;
  if (options.tp > 1) param.copies = tp_group;
  param.is_first_copy = options.tp_rank == 0;
  param.decays = sizes.num_dims() > 1;
  return param;
}

Param vocabulary_matrix(const LayerOptions& options, const std::string& name) {
  return row_slice_of_matrix(options, name, {options.model.vocab_size, options.model.hidden_size},
                             vocabulary_slice(options));
}

}  // namespace echelon
