// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/host/check.hpp"

namespace openvc::benchmarks {

/// Milliseconds of one of `calls` repetitions in a graph, for each of `replays` replays, ascending:
/// launches cost the host nothing, and inputs are where the repetition before left them.
inline std::vector<float> time_in_graph(const std::function<void(cudaStream_t)>& work, int calls,
                                        int replays) {
  using cuda::check;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  check(cudaEventCreate(&start), "creating an event");
  check(cudaEventCreate(&stop), "creating an event");
  work(stream);  // what is done once per process must not be captured
  check(cudaDeviceSynchronize(), "waiting for the inputs");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
  for (int call = 0; call < calls; ++call) work(stream);
  check(cudaStreamEndCapture(stream, &graph), "ending the capture");
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
  std::vector<float> times;
  for (int replay = 0; replay < replays; ++replay) {
    check(cudaEventRecord(start, stream), "recording");
    check(cudaGraphLaunch(executable, stream), "launching a graph");
    check(cudaEventRecord(stop, stream), "recording");
    check(cudaEventSynchronize(stop), "running");
    float ms = 0.0f;
    check(cudaEventElapsedTime(&ms, start, stop), "timing");
    times.push_back(ms / static_cast<float>(calls));
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  cudaStreamDestroy(stream);
  std::ranges::sort(times);
  return times;
}

}  // namespace openvc::benchmarks
