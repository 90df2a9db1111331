#include "library.h"

#include <omp.h>
#include <dnnl.hpp>

namespace echelon::bench {

Product onednn_product(const Shape& s, DType dtype, const Operands& operands) {
  using dnnl::memory;
  omp_set_num_threads(1);
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto type = dtype == DType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
  const auto strides = [](bool is_transposed, std::int64_t rows, std::int64_t columns) {
    return is_transposed ? memory::dims{1, rows} : memory::dims{columns, 1};
  };
  const memory::desc a({s.m, s.k}, type, strides(s.transposes_a(), s.m, s.k)),
      b({s.k, s.n}, type, strides(s.transposes_b(), s.k, s.n)), c({s.m, s.n}, type, memory::dims{s.n, 1});
  dnnl::primitive_attr attributes;
  if (s.accumulates()) {
    dnnl::post_ops adds;
    adds.append_sum(1);
    attributes.set_post_ops(adds);
  }
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine);
  return [=, product = dnnl::matmul(description), stream = dnnl::stream(engine)]() mutable {
    product.execute(stream, {{DNNL_ARG_SRC, memory(a, engine, operands.a)},
                             {DNNL_ARG_WEIGHTS, memory(b, engine, operands.b)},
                             {DNNL_ARG_DST, memory(c, engine, operands.c)}});
    stream.wait();
  };
}

}  // namespace echelon::bench
