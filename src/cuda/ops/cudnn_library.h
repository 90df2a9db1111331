// cuDNN, which is loaded when a rank starts and not linked.
#pragma once

namespace echelon::cuda {

/// What the frontend looks for cuDNN's functions in; null where there is none. Ranks are threads and may come at once;
/// the library stays loaded.
[[nodiscard]] void* cudnn_library();

}  // namespace echelon::cuda
