// What the GPU cannot do yet says so. This file goes when the last such operation has its kernel.
#pragma once

namespace echelon::cuda {

[[noreturn]] void not_yet();

}  // namespace echelon::cuda
