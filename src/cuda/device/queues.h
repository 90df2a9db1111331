// The hardware queues in which the streams of a process wait for the chip. Streams that share one may wait for each
// other, which those of communicators must not: ranks start operations of several communicators in different orders,
// and would wait in a circle.
#pragma once

namespace echelon::cuda {

/// Asks the driver, which must not have started, for as many as it has, unless CUDA_DEVICE_MAX_CONNECTIONS says how
/// many.
void request_queues();

/// Throws Error if the driver was asked for fewer queues than this rank has streams.
void require_queues(int num_streams);

}  // namespace echelon::cuda
