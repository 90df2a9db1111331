// Copies a rank's slice of a parameter to and from its place in a file, tile by tile, and converts the format. Memory
// use is small for any tensor size. Only this file handles transposed parameters and padding.
#pragma once

#include "checkpoint/hf/weight_names.h"
#include "checkpoint/safetensors/safetensors.h"
#include "files/file.h"

namespace echelon {

/// Reads the elements of `slice`, a slice of the parameter at `place` of `tensor`, as values of `dtype` to `out`.
/// Padding is not touched. The parameter has one or two dims. Throws Error if the tensor's format is not supported.
void read_slice(const File& file, const FileTensor& tensor, const FilePlace& place, const TensorSlice& slice,
                DType dtype, void* out);

/// Writes the values of `dtype` at `in` in the same way. Returns their number without padding. Throws Failure.
std::int64_t write_slice(File& file, const FileTensor& tensor, const FilePlace& place, const TensorSlice& slice,
                         DType dtype, const void* in);

}  // namespace echelon
