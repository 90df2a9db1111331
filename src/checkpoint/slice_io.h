// What a rank has of a parameter to and from its place in a file, tile by tile, with conversion of the number format:
// memory stays small whatever the tensor's size. The one place that knows transposed parameters and padding.
#pragma once

#include "checkpoint/safetensors/file_io.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/weight_names.h"

namespace echelon {

/// Reads the elements of `slice`, a slice of the parameter at `place` of `tensor`, as values of `dtype` to `out`.
/// Padding is left as it is. The parameter has one or two dims. Throws Error if the tensor's format is none of ours.
void read_slice(const File& file, const FileTensor& tensor, const FilePlace& place, const TensorSlice& slice,
                DType dtype, void* out);

/// Writes the values of `dtype` at `in` likewise, and returns how many there are without the padding. Throws Failure.
std::int64_t write_slice(File& file, const FileTensor& tensor, const FilePlace& place, const TensorSlice& slice,
                         DType dtype, const void* in);

}  // namespace echelon
