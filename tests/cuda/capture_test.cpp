// The emulation's captures: a graph is what CUDA makes of them, and what CUDA refuses is refused.
#include "cuda/emulated/runtime.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace echelon::cuda {
namespace {

class EmulatedCapture : public ::testing::Test {
 protected:
  EmulatedCapture() {
    for (cudaStream_t* stream : {&own, &other})
      EXPECT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    for (cudaEvent_t* event : {&forked, &joined})
      EXPECT_EQ(cudaEventCreateWithFlags(event, cudaEventDisableTiming), cudaSuccess);
    for (void** address : {&x, &y}) EXPECT_EQ(cudaMalloc(address, num_bytes), cudaSuccess);
    for (std::int64_t** address : {&in, &out})
      EXPECT_EQ(cudaMallocHost(reinterpret_cast<void**>(address), num_bytes), cudaSuccess);
  }
  ~EmulatedCapture() override {
    for (const cudaStream_t stream : {own, other}) cudaStreamDestroy(stream);
    for (const cudaEvent_t event : {forked, joined}) cudaEventDestroy(event);
    for (void* address : {x, y}) cudaFree(address);
    for (std::int64_t* address : {in, out}) cudaFreeHost(address);
  }

  cudaError_t copy(void* to, const void* from, cudaMemcpyKind kind, cudaStream_t stream) const {
    return cudaMemcpyAsync(to, from, num_bytes, kind, stream);
  }
  void begin() const { ASSERT_EQ(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal), cudaSuccess); }
  [[nodiscard]] cudaError_t end() {
    const cudaError_t error = cudaStreamEndCapture(own, &graph);
    if (error != cudaSuccess) {
      EXPECT_EQ(graph, nullptr);
    }
    return error;
  }
  /// `other` becomes part of the capture.
  void fork() const {
    EXPECT_EQ(cudaEventRecord(forked, own), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(other, forked), cudaSuccess);
  }

  static constexpr std::size_t num_bytes = sizeof(std::int64_t);
  cudaStream_t own = nullptr, other = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
  void *x = nullptr, *y = nullptr;
  std::int64_t *in = nullptr, *out = nullptr;
  cudaGraph_t graph = nullptr;
};

TEST_F(EmulatedCapture, RunsWhenItIsLaunchedInTheOrderOfItsEvents) {
  *in = *out = 0;
  begin();
  EXPECT_EQ(copy(x, in, cudaMemcpyHostToDevice, own), cudaSuccess);
  fork();
  EXPECT_EQ(copy(y, x, cudaMemcpyDeviceToDevice, other), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(joined, other), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(own, joined), cudaSuccess);
  EXPECT_EQ(copy(out, y, cudaMemcpyDeviceToHost, own), cudaSuccess);
  ASSERT_EQ(end(), cudaSuccess);
  cudaGraphExec_t instance = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&instance, graph, 0), cudaSuccess);
  *in = 1;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(*out, 0);
  for (const std::int64_t number : {2, 3, 4}) {
    *in = number;
    EXPECT_EQ(cudaGraphLaunch(instance, own), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(own), cudaSuccess);
    EXPECT_EQ(*out, number);
  }
  cudaGraphExecDestroy(instance);
  cudaGraphDestroy(graph);
}

TEST_F(EmulatedCapture, IsSpoiledByWhateverWouldWait) {
  void* memory = nullptr;
  std::int64_t pageable = 0;
  EXPECT_EQ(cudaEventRecord(joined, other), cudaSuccess);  // outside of the captures
  const std::pair<cudaError_t, std::function<cudaError_t()>> calls[] = {
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(own); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamQuery(own); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaDeviceSynchronize(); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaMalloc(&memory, 1); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaEventQuery(joined); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return copy(x, &pageable, cudaMemcpyHostToDevice, own); }},
      {cudaErrorStreamCaptureIsolation, [&] { return cudaStreamWaitEvent(own, joined); }},
      {cudaErrorStreamCaptureUnmatched,
       [&] {
         fork();
         return cudaStreamEndCapture(other, &graph);
       }},
  };
  for (const auto& [error, call] : calls) {
    begin();
    EXPECT_EQ(call(), error);
    EXPECT_EQ(copy(x, in, cudaMemcpyHostToDevice, own), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(copy(x, in, cudaMemcpyHostToDevice, own), cudaSuccess);  // the stream is as it was
  }
}

TEST_F(EmulatedCapture, MustBeJoinedByTheStreamsThatItForked) {
  begin();
  fork();
  EXPECT_EQ(copy(x, in, cudaMemcpyHostToDevice, other), cudaSuccess);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(cudaStreamWaitEvent(own, forked), cudaErrorCapturedEvent);
}

}  // namespace
}  // namespace echelon::cuda
