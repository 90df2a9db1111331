#include "checkpoint/base_digest.h"

#include "base/error.h"
#include "checkpoint/model_reader.h"

#include <algorithm>
#include <vector>

namespace echelon {

Digest digest_of_base(const ModelReader& model) {
  // Of a matrix that the file has transposed, every value of a row is a read of its own.
  constexpr std::int64_t most_values = 128;
  std::string summary;
  std::vector<double> values;
  for (const NamedShape& parameter : global_parameters(model.spec())) {
    const TensorSlice whole(parameter.sizes);
    const std::int64_t count = std::min(most_values, whole.num_elements()), last = whole.num_elements() - count;
    summary += parameter.name + to_string(parameter.sizes);
    values.resize(static_cast<std::size_t>(count));
    for (const std::int64_t first : {std::int64_t{0}, last / 2, last}) {
      model.read_exactly(parameter.name, whole.elements({first, count}), values.data());
      summary += to_text(digest_of(values.data(), values.size() * sizeof(double)));
    }
  }
  return digest_of(summary);
}

Digest digest_of_base(const std::filesystem::path& folder) {
  require(!has_adapters(folder), "'{}' has adapters, which are no base (use echelon convert --merge first)",
          folder.string());
  return digest_of_base(ModelReader(folder));
}

Digest digest_of_drawn_base(std::int64_t seed) { return digest_of(fmt::format("training.seed = {}", seed)); }

}  // namespace echelon
