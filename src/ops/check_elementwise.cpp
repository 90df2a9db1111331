#include "ops/check.h"
#include "ops/checker.h"

namespace echelon {

void check_add(Tensor out, Tensor a, Tensor b) {
  const ArgumentChecker must("add");
  must.computes("a", a);
  must.computes("b", b);
  must.count("b", b, a.num_elements());
  must.that(accumulate_dtype(b.dtype) == accumulate_dtype(a.dtype), "b", b,
            "have a dtype whose sums have the dtype of a's sums");
  must.like("out", out, a);
}

void check_copy(Tensor out, Tensor x) {
  const ArgumentChecker must("copy");
  must.count("out", out, x.num_elements());
  if (out.dtype == x.dtype) return;  // any format may be copied to itself
  must.computes("x", x);
  must.computes("out", out);
}

void check_fill(Tensor out) {
  if (!is_integer(out.dtype)) ArgumentChecker("fill").computes("out", out);
}

void check_scale(Tensor x) { ArgumentChecker("scale").computes("x", x); }

void check(const GeluArgs& args) {
  const ArgumentChecker must("gelu");
  must.matrix("x", args.x);
  must.like("y", args.y, args.x);
  if (args.bias.exists()) must.vector("bias", args.bias, args.x);
}

void check(const GeluBackwardArgs& args) {
  const ArgumentChecker must("gelu_backward");
  must.matrix("x", args.x);
  must.like("dy", args.dy, args.x);
  must.like("dx", args.dx, args.x);
  if (args.bias.exists()) must.vector("bias", args.bias, args.x);
  if (args.dbias.exists()) must.count("dbias", args.dbias, num_columns(args.x));
  if (args.dbias.exists()) must.gradient("dbias", args.dbias, args.x.dtype);
  if (args.y.exists()) must.like("y", args.y, args.x);
}

void check(const SwigluArgs& args) {
  const ArgumentChecker must("swiglu");
  must.computes("y", args.y);
  must.like("gate", args.gate, args.y);
  must.like("up", args.up, args.y);
}

void check(const SwigluBackwardArgs& args) {
  const ArgumentChecker must("swiglu_backward");
  must.computes("dy", args.dy);
  for (const Tensor& tensor : {args.gate, args.up, args.dgate, args.dup})
    must.like("gate, up or a gradient of them", tensor, args.dy);
  if (args.y.exists()) must.like("y", args.y, args.dy);
}

}  // namespace echelon
