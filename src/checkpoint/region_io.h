// A rank's slice to and from a file, tile by tile, with conversion of the number format: memory stays small whatever
// the tensor's size.
#pragma once

#include "checkpoint/file_io.h"
#include "checkpoint/file_region.h"
#include "checkpoint/safetensors.h"

namespace echelon {

/// Reads the region of `tensor` into the slice at `out`, numbers of `dtype`. Padding is left as it is. Throws Error if
/// the tensor's format is none of ours.
void read_region(const File& file, const FileTensor& tensor, const FileRegion& region, DType dtype, void* out);

/// Writes the slice at `in`, numbers of `dtype`, into the region of `tensor`. Throws Failure.
void write_region(File& file, const FileTensor& tensor, const FileRegion& region, DType dtype, const void* in);

}  // namespace echelon
