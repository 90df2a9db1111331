#include "large/large_tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace echelon::testing {
namespace {

constexpr std::int64_t page_bytes = 4096, period_bytes = page_bytes * 16411;  // a prime number of pages
constexpr std::int64_t guard_bytes = std::int64_t{1} << 35;  // more than an offset that overflowed is off
constexpr int nan_byte = 0xff;

std::int64_t whole_pages(std::int64_t num_bytes) { return (num_bytes + page_bytes - 1) / page_bytes * page_bytes; }

std::byte* mapped(void* address) {
  if (address == MAP_FAILED) throw std::runtime_error("no memory can be mapped");
  return static_cast<std::byte*>(address);
}

float value_of(std::int64_t i, unsigned seed) {
  const std::uint64_t mixed = (static_cast<std::uint64_t>(i) + seed * 1000003U) * 0x9E3779B97F4A7C15U;
  return (static_cast<float>(mixed >> 40U & 31U) - 16) / 8;
}

void write_values(const Tensor& x, unsigned seed) {
  for (std::int64_t i = 0; i < x.num_elements(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(value_of(i, seed));
    if (x.dtype == DType::float32)
      reinterpret_cast<std::uint32_t*>(x.data)[i] = bits;
    else
      reinterpret_cast<std::uint16_t*>(x.data)[i] = static_cast<std::uint16_t>(bits >> 16U);  // of bfloat16
  }
}

}  // namespace

LargeTensor::LargeTensor(DType dtype, Sizes sizes, unsigned seed) : tensor_(nullptr, dtype, sizes) {
  const std::int64_t num_bytes = whole_pages(tensor_.num_bytes()), of_period = std::min(num_bytes, period_bytes);
  num_reserved_ = num_bytes + 2 * guard_bytes;
  reserved_ = mapped(mmap(nullptr, static_cast<std::size_t>(num_reserved_), PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  tensor_.data = reserved_ + guard_bytes;
  const int file = memfd_create("period", 0);
  if (file < 0 || ftruncate(file, of_period) != 0) throw std::runtime_error("no memory for a period");
  for (std::int64_t first = 0; first < num_bytes; first += of_period)
    mapped(mmap(tensor_.data + first, static_cast<std::size_t>(std::min(of_period, num_bytes - first)),
                PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0));
  close(file);
  write_values(Tensor(tensor_.data, dtype, {std::min(of_period / size_of(dtype), tensor_.num_elements())}), seed);
}

LargeTensor::~LargeTensor() { munmap(reserved_, static_cast<std::size_t>(num_reserved_)); }

void LargeTensor::own(std::int64_t first_byte, std::int64_t num_bytes) {
  const std::int64_t first = first_byte / page_bytes * page_bytes, count = whole_pages(first_byte + num_bytes) - first;
  const std::vector<std::byte> values(tensor_.data + first, tensor_.data + first + count);
  mapped(mmap(tensor_.data + first, static_cast<std::size_t>(count), PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  std::ranges::copy(values, tensor_.data + first);
}

LargeTensor& LargeTensor::keep(const std::vector<RowWindow>& windows) {
  for (const RowWindow& window : windows) {
    const Tensor rows = tensor_.rows(window.first, window.count);
    own(rows.data - tensor_.data, rows.num_bytes());
  }
  return *this;
}

LargeTensor& LargeTensor::clear(const std::vector<RowWindow>& windows) {
  keep(windows);
  for (const RowWindow& window : windows) {
    const Tensor rows = tensor_.rows(window.first, window.count);
    std::memset(rows.data, nan_byte, static_cast<std::size_t>(rows.num_bytes()));
  }
  return *this;
}

SmallTensor::SmallTensor(const Tensor& x) : SmallTensor(x.dtype, x.sizes) {
  std::memcpy(bytes_.data(), x.data, bytes_.size());
}
SmallTensor::SmallTensor(DType dtype, Sizes sizes)
    : bytes_(static_cast<std::size_t>(sizes.num_elements() * size_of(dtype)), static_cast<std::byte>(nan_byte)),
      tensor_(bytes_.data(), dtype, sizes) {}

SmallTensor small_values(DType dtype, Sizes sizes, unsigned seed) {
  SmallTensor x(dtype, sizes);
  write_values(x, seed);
  return x;
}

std::int64_t num_small_elements() {
  const char* value = std::getenv("ECHELON_SIZES");  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return std::int64_t{1} << (value != nullptr && std::string_view(value) == "long" ? 31 : 17);
}

std::int64_t num_large_rows(std::int64_t row_elements) { return num_small_elements() / row_elements + 16; }

std::vector<RowWindow> windows_of(std::int64_t row_elements) {
  const std::int64_t boundary = num_small_elements() / row_elements;
  return {{0, 2}, {boundary - 2, 5}, {boundary + 13, 3}};
}

bool has_same_bytes(const Tensor& a, const Tensor& b) {
  return a.num_bytes() == b.num_bytes() && std::memcmp(a.data, b.data, static_cast<std::size_t>(a.num_bytes())) == 0;
}

}  // namespace echelon::testing
